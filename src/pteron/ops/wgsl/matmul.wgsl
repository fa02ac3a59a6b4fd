// Matrix products. One invocation computes a 4 x 4 tile. Depth is a multiple of 4, and so are columns unless
// TRANSPOSED.
@group(0) @binding(0) var<storage, read> a: array<a_word>;         // [batch, rows, depth]
@group(0) @binding(1) var<storage, read> b: array<b_word>;         // [batch, depth, columns], or TRANSPOSED
@group(0) @binding(2) var<storage, read> c: array<c_word>;         // broadcast to [batch, rows, columns]
@group(0) @binding(3) var<storage, read_write> y: array<ELEMENT>;  // [batch, rows, columns]
@group(0) @binding(4) var<uniform> p: Params;

//#include product
//#include finish_four
//#include block_index

fn product(x: vec4<f32>, block: mat4x4<f32>) -> vec4<f32> {
    if (TRANSPOSED) { return x * block; }
    return block * x;
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let tile = flat_index(id, groups);
    let across = (p.columns + 3u) / 4u;
    let down = (p.rows + 3u) / 4u;
    let matrix = tile / (across * down);
    if (matrix >= p.batch) { return; }
    let row = tile / across % down * 4u;
    let column = tile % across * 4u;
    let k4 = p.depth / 4u;
    // Rows past the end repeat the last row. They are not stored.
    let rows = min(vec4<u32>(row) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(p.rows - 1u));
    let r = (vec4<u32>(matrix * p.rows) + rows) * k4;
    var at = block_index(matrix, column);
    let onward = block_stride();
    var s0 = vec4<f32>(0.0);
    var s1 = vec4<f32>(0.0);
    var s2 = vec4<f32>(0.0);
    var s3 = vec4<f32>(0.0);
    for (var k = 0u; k < k4; k++) {
        let block = mat4x4<f32>(b_quad(at.x), b_quad(at.y), b_quad(at.z), b_quad(at.w));
        at += onward;
        s0 += product(a_quad(r.x + k), block);
        s1 += product(a_quad(r.y + k), block);
        s2 += product(a_quad(r.z + k), block);
        s3 += product(a_quad(r.w + k), block);
    }
    var sums = array<vec4<f32>, 4>(s0, s1, s2, s3);
    let end = min(row + 4u, p.rows);
    for (var i = row; i < end; i++) { finish_four(matrix, i, column, sums[i - row]); }
}
