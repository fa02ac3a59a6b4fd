// x @ W^T for many rows. A workgroup computes SIDE rows of SIDE columns. In each step it loads a slice of x
// and a slice of W into its memory, where they are decoded once for all lanes. A lane computes every DOWN-th
// row of four columns. See dot_quads.
//#include dot_quads

const DOWN = 8u;
const ACROSS = SIDE / 4u;
const LANES = DOWN * ACROSS;
const LINE = SIDE + 1u;  // lanes that store to several lines use different memory banks

var<workgroup> some_x: array<quad_t, QUADS * LINE>;  // [quad, row]
var<workgroup> some_w: array<quad_t, QUADS * LINE>;  // [quad, column], first every fourth column

// Neighbouring lanes read neighbouring memory: along the depth, or along rows or columns if those are
// contiguous.
fn bring(lane: u32, size: Extent, origin: Corner, k: u32) {
    for (var i = lane; i < QUADS * SIDE; i += LANES) {
        let quad = select(i % QUADS, i / SIDE, ROWS_FIRST);
        let line = select(i / QUADS, i % SIDE, ROWS_FIRST);
        let row = min(origin.row + line, size.rows - 1u);
        let inside = k + quad < size.quads;
        let value = row_quad(origin.matrix, row, min(k + quad, size.quads - 1u));
        some_x[quad * LINE + line] = select(quad_t(), value, inside);
    }
    for (var i = lane; i < QUADS * SIDE; i += LANES) {
        let quad = select(i % QUADS, i / SIDE, COLUMNS_FIRST);
        let line = select(i / QUADS, i % SIDE, COLUMNS_FIRST);
        let column = min(origin.column + line, size.columns - 1u);
        let inside = k + quad < size.quads;
        let value = column_quad(origin.matrix, column, min(k + quad, size.quads - 1u));
        some_w[quad * LINE + line % 4u * ACROSS + line / 4u] = select(quad_t(), value, inside);
    }
}

@compute @workgroup_size(LANES)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let size = extent();
    let origin = corner(size, flat_group(group, groups), SIDE, SIDE);
    if (origin.matrix >= size.matrices) { return; }
    let right = lane % ACROSS;
    let down = lane / ACROSS;
    var sum: array<sum4_t, SIDE / DOWN>;
    for (var k = 0u; k < size.quads; k += QUADS) {
        bring(lane, size, origin, k);
        workgroupBarrier();
        for (var q = 0u; q < QUADS; q++) {
            let w0 = some_w[q * LINE + right];
            let w1 = some_w[q * LINE + right + ACROSS];
            let w2 = some_w[q * LINE + right + 2u * ACROSS];
            let w3 = some_w[q * LINE + right + 3u * ACROSS];
            for (var r = 0u; r < SIDE / DOWN; r++) {
                let v = some_x[q * LINE + down + r * DOWN];
                sum[r] += sum4_t(times(v, w0), times(v, w1), times(v, w2), times(v, w3));
            }
        }
        workgroupBarrier();
    }
    let column = origin.column + 4u * right;
    if (column >= size.columns) { return; }
    for (var r = 0u; r < SIDE / DOWN; r++) {
        let row = origin.row + down + r * DOWN;
        if (row < size.rows) { finish_four(origin.matrix, row, column, sum[r]); }
    }
}
