// y = x @ weight^T + bias. One invocation computes a 4 x 4 tile; depth and columns are multiples of 4.
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;        // [rows, depth / 4]
@group(0) @binding(1) var<storage, read> weight: array<vec4<f32>>;   // [columns, depth / 4]
@group(0) @binding(2) var<storage, read> bias: array<vec4<f32>>;     // [columns / 4]
@group(0) @binding(3) var<storage, read_write> y: array<vec4<f32>>;  // [rows, columns / 4]
@group(0) @binding(4) var<uniform> p: Params;

struct Params { rows: u32, columns: u32, depth: u32 }

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let tile = flat_index(id, groups);
    let across = p.columns / 4u;
    let row = (tile / across) * 4u;
    if (row >= p.rows) { return; }
    let column = tile % across;
    let k4 = p.depth / 4u;
    // Rows past the end repeat the last one: loads stay in bounds, and the stores below skip them.
    let last = p.rows - 1u;
    let r = min(vec4<u32>(row) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(last)) * k4;
    let c = (vec4<u32>(column * 4u) + vec4<u32>(0u, 1u, 2u, 3u)) * k4;
    var s0 = vec4<f32>(0.0);
    var s1 = vec4<f32>(0.0);
    var s2 = vec4<f32>(0.0);
    var s3 = vec4<f32>(0.0);
    for (var k = 0u; k < k4; k++) {
        let w0 = weight[c.x + k];
        let w1 = weight[c.y + k];
        let w2 = weight[c.z + k];
        let w3 = weight[c.w + k];
        let x0 = x[r.x + k];
        let x1 = x[r.y + k];
        let x2 = x[r.z + k];
        let x3 = x[r.w + k];
        s0 += vec4<f32>(dot(x0, w0), dot(x0, w1), dot(x0, w2), dot(x0, w3));
        s1 += vec4<f32>(dot(x1, w0), dot(x1, w1), dot(x1, w2), dot(x1, w3));
        s2 += vec4<f32>(dot(x2, w0), dot(x2, w1), dot(x2, w2), dot(x2, w3));
        s3 += vec4<f32>(dot(x3, w0), dot(x3, w1), dot(x3, w2), dot(x3, w3));
    }
    var b = vec4<f32>(0.0);
    if (HAS_BIAS) { b = bias[column]; }
    y[row * across + column] = s0 + b;
    if (row + 1u < p.rows) { y[(row + 1u) * across + column] = s1 + b; }
    if (row + 2u < p.rows) { y[(row + 2u) * across + column] = s2 + b; }
    if (row + 3u < p.rows) { y[(row + 3u) * across + column] = s3 + b; }
}
