// y = a^T @ b. One invocation computes a 4 x 4 tile. Rows and columns of y are multiples of 4.
@group(0) @binding(0) var<storage, read> a: array<vec4<f32>>;        // [depth, rows / 4]
@group(0) @binding(1) var<storage, read> b: array<vec4<f32>>;        // [depth, columns / 4]
@group(0) @binding(2) var<storage, read_write> y: array<vec4<f32>>;  // [rows, columns / 4]
@group(0) @binding(3) var<uniform> p: Params;

struct Params { rows: u32, columns: u32, depth: u32 }

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let tile = flat_index(id, groups);
    let across = p.columns / 4u;
    let down = p.rows / 4u;
    let column = tile % across;
    let row = tile / across;
    if (row >= down) { return; }
    var s0 = vec4<f32>(0.0);
    var s1 = vec4<f32>(0.0);
    var s2 = vec4<f32>(0.0);
    var s3 = vec4<f32>(0.0);
    for (var k = 0u; k < p.depth; k++) {
        let u = a[k * down + row];
        let v = b[k * across + column];
        s0 += u.x * v;
        s1 += u.y * v;
        s2 += u.z * v;
        s3 += u.w * v;
    }
    let first = 4u * row * across + column;
    y[first] = s0;
    y[first + across] = s1;
    y[first + 2u * across] = s2;
    y[first + 3u * across] = s3;
}
