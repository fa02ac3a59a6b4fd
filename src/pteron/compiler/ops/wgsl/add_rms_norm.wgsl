// total = a + b; y = total * inverseSqrt(mean(total^2) + eps) * weight. One invocation computes one row.
@group(0) @binding(0) var<storage, read> a: array<vec4<f32>>;            // [rows, width / 4]
@group(0) @binding(1) var<storage, read> b: array<vec4<f32>>;            // [rows, width / 4]
@group(0) @binding(2) var<storage, read> weight: array<vec4<f32>>;       // [width / 4]
@group(0) @binding(3) var<storage, read_write> total: array<vec4<f32>>;  // [rows, width / 4]
@group(0) @binding(4) var<storage, read_write> y: array<vec4<f32>>;      // [rows, width / 4]
@group(0) @binding(5) var<uniform> p: Params;

struct Params { rows: u32, width: u32, eps: f32 }

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let row = flat_index(id, groups);
    if (row >= p.rows) { return; }
    let quads = p.width / 4u;
    let first = row * quads;
    var sum = vec4<f32>(0.0);
    for (var k = 0u; k < quads; k++) {
        let v = a[first + k] + b[first + k];
        total[first + k] = v;
        sum += v * v;
    }
    let scale = inverseSqrt(dot(sum, vec4<f32>(1.0)) / f32(p.width) + p.eps);
    for (var k = 0u; k < quads; k++) { y[first + k] = total[first + k] * scale * weight[k]; }
}
