// Matrix products. Each of eight lanes loads four values in depth of one of eight rows of a, and the lanes
// exchange them. One invocation computes ROWS (1, 8 or 16) rows of four neighbouring columns. Unless RAGGED,
// rows of both operands are whole quads. Needs subgroups of at least eight lanes. A step reads little, because
// software adapters make long code of every load, and the loop must fit in the code cache.
//#trusted
@group(0) @binding(0) var<storage, read> a: array<a_word>;         // [batch, rows, depth]
@group(0) @binding(1) var<storage, read> b: array<b_word>;         // [batch, depth, columns], or TRANSPOSED
@group(0) @binding(2) var<storage, read> c: array<c_word>;         // broadcast to [batch, rows, columns]
@group(0) @binding(3) var<storage, read_write> y: array<ELEMENT>;  // [batch, rows, columns]
@group(0) @binding(4) var<uniform> p: Params;

//#include product
//#include finish_four
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
    let first = (matrix * p.rows + min(row + (member & 7u), p.rows - 1u)) * p.depth;
    let second = (matrix * p.rows + min(row + 8u + (member & 7u), p.rows - 1u)) * p.depth;
    let c = min(column + FOUR, vec4<u32>(p.columns - 1u));
    var at = matrix * p.columns * p.depth + c * select(1u, p.depth, TRANSPOSED);
    let onward = select(p.columns, 1u, TRANSPOSED);
    var alone = vec4<f32>();
    var upper = Eight();
    var lower = Eight();
    var k = 0u;
    for (; k + 4u <= p.depth; k += 4u) {
        let w = b_block(at);
        at += 4u * onward;
//#if ALONE
        alone = add_four(shared_by_four(a_at((matrix * p.rows + row) * p.depth + k + (member & 3u))), w, alone);
//#end
//#if EIGHT
        upper = add_eight(a_four(first + k), w, upper);
//#end
//#if SIXTEEN
        lower = add_eight(a_four(second + k), w, lower);
//#end
    }
    if (RAGGED) {  // the last one to three steps
        for (; k < p.depth; k++) {
            let w = b_four(at);
            at += onward;
//#if ALONE
            alone = fma(vec4<f32>(a_at((matrix * p.rows + row) * p.depth + k)), w, alone);
//#end
//#if EIGHT
            upper = add_step(a_at(first + k), w, upper);
//#end
//#if SIXTEEN
            lower = add_step(a_at(second + k), w, lower);
//#end
        }
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
