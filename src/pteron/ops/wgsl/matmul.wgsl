// y = alpha * (a @ b) + beta * c for each of a batch. One invocation computes a 4 x 4 tile; depth and columns
// are multiples of 4.
@group(0) @binding(0) var<storage, read> a: array<vec4<f32>>;        // [batch, rows, depth / 4]
@group(0) @binding(1) var<storage, read> b: array<vec4<f32>>;        // [batch, depth, columns / 4]
@group(0) @binding(2) var<storage, read> c: array<f32>;              // broadcast to [batch, rows, columns]
@group(0) @binding(3) var<storage, read_write> y: array<vec4<f32>>;  // [batch, rows, columns / 4]
@group(0) @binding(4) var<uniform> p: Params;

struct Params {
    batch: u32, rows: u32, columns: u32, depth: u32,
    alpha: f32, beta: f32, c_batch: u32, c_row: u32, c_column: u32,
}

fn finished(sum: vec4<f32>, matrix: u32, row: u32, column: u32) -> vec4<f32> {
    if (!HAS_C) { return sum; }
    if (p.beta == 0.0) { return p.alpha * sum; }
    let at = matrix * p.c_batch + row * p.c_row + 4u * column * p.c_column;
    let added = vec4<f32>(c[at], c[at + p.c_column], c[at + 2u * p.c_column], c[at + 3u * p.c_column]);
    return p.alpha * sum + p.beta * added;
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let tile = flat_index(id, groups);
    let across = p.columns / 4u;
    let down = (p.rows + 3u) / 4u;
    let matrix = tile / (across * down);
    if (matrix >= p.batch) { return; }
    let row = ((tile / across) % down) * 4u;
    let column = tile % across;
    let k4 = p.depth / 4u;
    let last = p.rows - 1u;
    let r = (vec4<u32>(matrix * p.rows) + min(vec4<u32>(row) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(last))) * k4;
    let first = matrix * p.depth * across + column;
    var s0 = vec4<f32>(0.0);
    var s1 = vec4<f32>(0.0);
    var s2 = vec4<f32>(0.0);
    var s3 = vec4<f32>(0.0);
    for (var k = 0u; k < k4; k++) {
        let b0 = b[first + (4u * k) * across];
        let b1 = b[first + (4u * k + 1u) * across];
        let b2 = b[first + (4u * k + 2u) * across];
        let b3 = b[first + (4u * k + 3u) * across];
        let a0 = a[r.x + k];
        let a1 = a[r.y + k];
        let a2 = a[r.z + k];
        let a3 = a[r.w + k];
        s0 += a0.x * b0 + a0.y * b1 + a0.z * b2 + a0.w * b3;
        s1 += a1.x * b0 + a1.y * b1 + a1.z * b2 + a1.w * b3;
        s2 += a2.x * b0 + a2.y * b1 + a2.z * b2 + a2.w * b3;
        s3 += a3.x * b0 + a3.y * b1 + a3.z * b2 + a3.w * b3;
    }
    let out = (matrix * p.rows + row) * across + column;
    y[out] = finished(s0, matrix, row, column);
    if (row + 1u < p.rows) { y[out + across] = finished(s1, matrix, row + 1u, column); }
    if (row + 2u < p.rows) { y[out + 2u * across] = finished(s2, matrix, row + 2u, column); }
    if (row + 3u < p.rows) { y[out + 3u * across] = finished(s3, matrix, row + 3u, column); }
}
