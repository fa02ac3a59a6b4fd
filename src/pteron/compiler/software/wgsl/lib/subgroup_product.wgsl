// Matrix products. Each of eight lanes loads four values in depth of one of eight rows of a, and the lanes
// exchange them. One invocation computes ROWS (1, or 8 * EIGHTS) rows of four neighbouring columns. Unless RAGGED,
// rows of both operands are whole quads. Needs subgroups of at least eight lanes. A step reads little, because
// software adapters make long code of every load, and the loop must fit in the code cache.
//#include eight_rows

// Four steps in depth of a row of a, from an element on.
fn a_four(at: u32) -> vec4<f32> {
    if (RAGGED) { return vec4<f32>(a_at(at), a_at(at + 1u), a_at(at + 2u), a_at(at + 3u)); }
    return a_quad(at / 4u);
}

// Four elements of b. Unless RAGGED, they are neighbours.
fn b_four(at: vec4<u32>) -> vec4<f32> {
    if (RAGGED) { return vec4<f32>(b_at(at.x), b_at(at.y), b_at(at.z), b_at(at.w)); }
    return b_quad(at.x / 4u);
}

const FOUR = vec4<u32>(0u, 1u, 2u, 3u);

// Four columns of four steps in depth of b. `at` is the first step of the columns.
fn b_block(at: vec4<u32>) -> mat4x4<f32> {
    if (TRANSPOSED) {
        return transpose(mat4x4<f32>(
            b_four(at.xxxx + FOUR), b_four(at.yyyy + FOUR), b_four(at.zzzz + FOUR), b_four(at.wwww + FOUR)
        ));
    }
    return mat4x4<f32>(
        b_four(at), b_four(at + p.columns), b_four(at + 2u * p.columns), b_four(at + 3u * p.columns)
    );
}

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
    // Rows and columns past the end repeat the last one, because all lanes must exchange values. They are not
    // stored.
//#if not ALONE
    var from_a: array<u32, EIGHTS>;
//#each e EIGHTS
    from_a[e] = (matrix * p.rows + min(row + 8u * e + (member & 7u), p.rows - 1u)) * p.depth;
//#end e
    var eights: array<Eight, EIGHTS>;
//#end
    let c = min(column + FOUR, vec4<u32>(p.columns - 1u));
    var at = matrix * p.columns * p.depth + c * select(1u, p.depth, TRANSPOSED);
    let onward = select(p.columns, 1u, TRANSPOSED);
    var alone = vec4<f32>();
    var k = 0u;
    for (; k + 4u <= p.depth; k += 4u) {
        let w = b_block(at);
        at += 4u * onward;
//#if ALONE
        alone = add_four(shared_by_four(a_at((matrix * p.rows + row) * p.depth + k + (member & 3u))), w, alone);
//#else
//#each e EIGHTS
        eights[e] = add_eight(a_four(from_a[e] + k), w, eights[e]);
//#end e
//#end
    }
    if (RAGGED) {  // the last one to three steps
        for (; k < p.depth; k++) {
            let w = b_four(at);
            at += onward;
//#if ALONE
            alone = fma(vec4<f32>(a_at((matrix * p.rows + row) * p.depth + k)), w, alone);
//#else
//#each e EIGHTS
            eights[e] = add_step(a_at(from_a[e] + k), w, eights[e]);
//#end e
//#end
        }
    }
    // A loop of unknown length is not unrolled, so it compiles much faster.
    var sums: array<vec4<f32>, ROWS>;
//#if ALONE
    sums[0] = alone;
//#else
//#each e EIGHTS
    sums[8u * e] = eights[e].n0;
    sums[8u * e + 1u] = eights[e].n1;
    sums[8u * e + 2u] = eights[e].n2;
    sums[8u * e + 3u] = eights[e].n3;
    sums[8u * e + 4u] = eights[e].n4;
    sums[8u * e + 5u] = eights[e].n5;
    sums[8u * e + 6u] = eights[e].n6;
    sums[8u * e + 7u] = eights[e].n7;
//#end e
//#end
    let end = min(row + ROWS, p.rows);
    if (column >= p.columns) { return; }
    let bias = bias_of(column);
    for (var r = row; r < end; r++) { finish_row(matrix, r, column, sums[r - row], bias); }
}
