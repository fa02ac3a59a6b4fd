// Matrix products. Each of eight lanes loads four values in depth of one of eight rows of a, and the lanes
// exchange them. One invocation computes ROWS (1, 8 or 16) rows of four neighbouring columns. Depth is a
// multiple of 4, and so are columns unless TRANSPOSED. Needs subgroups of at least eight lanes. A step reads
// little, because software adapters make long code of every load, and the loop must fit in the code cache.
//#trusted
@group(0) @binding(0) var<storage, read> a: array<a_word>;         // [batch, rows, depth]
@group(0) @binding(1) var<storage, read> b: array<b_word>;         // [batch, depth, columns], or TRANSPOSED
@group(0) @binding(2) var<storage, read> c: array<c_word>;         // broadcast to [batch, rows, columns]
@group(0) @binding(3) var<storage, read_write> y: array<ELEMENT>;  // [batch, rows, columns]
@group(0) @binding(4) var<uniform> p: Params;

//#include product
//#include finish_four
//#include block_index
//#include eight_rows

//#if ALONE
fn shared_by_four(x: f32) -> vec4<f32> {
    return vec4<f32>(
        subgroupBroadcast(x, 0u), subgroupBroadcast(x, 1u), subgroupBroadcast(x, 2u), subgroupBroadcast(x, 3u)
    );
}
//#end

@compute @workgroup_size(LANES)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
    @builtin(subgroup_invocation_id) member: u32,
) {
    let start = corner(flat_group(group, groups), ROWS, 4u * LANES);
    if (start.matrix >= p.batch) { return; }
    let matrix = start.matrix;
    let row = start.row;
    let column = start.column + 4u * lane;
    let k4 = p.depth / 4u;
    // Rows and columns past the end repeat the last one, because all lanes must exchange values. They are not
    // stored.
    let first = (matrix * p.rows + min(row + (member & 7u), p.rows - 1u)) * k4;
    let second = (matrix * p.rows + min(row + 8u + (member & 7u), p.rows - 1u)) * k4;
    var at = block_index(matrix, column);
    let onward = block_stride();
    var alone = vec4<f32>();
    var upper = Eight();
    var lower = Eight();
    for (var k = 0u; k < k4; k++) {
        var w = mat4x4<f32>(b_quad(at.x), b_quad(at.y), b_quad(at.z), b_quad(at.w));
        if (TRANSPOSED) { w = transpose(w); }
        at += onward;
//#if ALONE
        alone = add_four(shared_by_four(a_at(4u * ((matrix * p.rows + row) * k4 + k) + (member & 3u))), w, alone);
//#end
//#if EIGHT
        upper = add_eight(a_quad(first + k), w, upper);
//#end
//#if SIXTEEN
        lower = add_eight(a_quad(second + k), w, lower);
//#end
    }
    // A loop of unknown length is not unrolled, so it compiles much faster.
    var sums = array<vec4<f32>, ROWS>(
//#if ALONE
        alone,
//#end
//#if EIGHT
        upper.n0, upper.n1, upper.n2, upper.n3, upper.n4, upper.n5, upper.n6, upper.n7,
//#end
//#if SIXTEEN
        lower.n0, lower.n1, lower.n2, lower.n3, lower.n4, lower.n5, lower.n6, lower.n7,
//#end
    );
    let end = min(row + ROWS, p.rows);
    for (var r = row; r < end; r++) { finish_four(matrix, r, column, sums[r - row]); }
}
