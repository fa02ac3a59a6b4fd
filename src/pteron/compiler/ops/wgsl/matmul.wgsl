// Matrix products. One invocation computes a 4 x 4 tile. Unless RAGGED, rows of both operands are whole quads.
@group(0) @binding(0) var<storage, read> a: array<a_word>;         // [batch, rows, depth]
@group(0) @binding(1) var<storage, read> b: array<b_word>;         // [batch, depth, columns], or TRANSPOSED
@group(0) @binding(2) var<storage, read> c: array<c_word>;         // broadcast to [batch, rows, columns]
@group(0) @binding(3) var<storage, read_write> y: array<ELEMENT>;  // [batch, rows, columns]
@group(0) @binding(4) var<uniform> p: Params;

//#include product
//#include operands
//#include finish_four

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let tile = flat_index(id, groups);
    let across = (p.columns + 3u) / 4u;
    let down = (p.rows + 3u) / 4u;
    let matrix = tile / (across * down);
    if (matrix >= p.batch) { return; }
    let row = tile / across % down * 4u;
    let column = tile % across * 4u;
    // Rows past the end repeat the last row. They are not stored.
    let rows = min(vec4<u32>(row) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(p.rows - 1u));
    var s0 = vec4<f32>(0.0);
    var s1 = vec4<f32>(0.0);
    var s2 = vec4<f32>(0.0);
    var s3 = vec4<f32>(0.0);
    for (var k = 0u; k < p.depth; k += 4u) {
        let block = b_block(matrix, k, column);
        s0 += block * a_four(matrix, rows.x, k);
        s1 += block * a_four(matrix, rows.y, k);
        s2 += block * a_four(matrix, rows.z, k);
        s3 += block * a_four(matrix, rows.w, k);
    }
    var sums = array<vec4<f32>, 4>(s0, s1, s2, s3);
    let end = min(row + 4u, p.rows);
    for (var i = row; i < end; i++) { finish_four(matrix, i, column, sums[i - row]); }
}
