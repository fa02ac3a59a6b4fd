// x @ W^T for many rows. A workgroup computes HEIGHT rows of WIDTH columns. In each step it loads QUADS quads of
// x and of W into its memory, where they are decoded once for all lanes. A lane computes TALL rows of four
// columns. With several SLICES, as many sets of lanes divide the depth and add up their sums at the end: a small
// product then has more lanes. The loads of the next step are under way while one is computed. See dot_quads.
//#include dot_quads

const DOWN = HEIGHT / TALL;
const ACROSS = WIDTH / 4u;
const LANES = DOWN * ACROSS;  // of a slice
const OTHERS = SLICES - 1u + 1u / SLICES;  // slices; an array has at least one element
const X_TURNS = QUADS * HEIGHT / LANES;
const W_TURNS = QUADS * WIDTH / LANES;

// One quad of all rows, and of all columns. With the gap, lanes that store to several lines use different memory
// banks. Arrays are nested, so only the innermost index varies: the driver's checks of the others cost nothing.
struct XLine { rows: array<array<quad_t, DOWN>, TALL>, gap: quad_t }
struct WLine { columns: array<array<quad_t, ACROSS>, 4>, gap: quad_t }
var<workgroup> some_x: array<array<XLine, QUADS>, SLICES>;
var<workgroup> some_w: array<array<WLine, QUADS>, SLICES>;
var<workgroup> others: array<array<sum4_t, LANES>, OTHERS>;  // sums of the other slices

struct Step { x: array<quad_t, X_TURNS>, w: array<quad_t, W_TURNS> }

// Which quad, and which row or column, turn i loads. Neighbouring lanes read neighbouring memory: along the
// depth, or along rows or columns if those are contiguous.
fn place_of(i: u32, side: u32, across: bool) -> vec2<u32> {
    if (across) { return vec2<u32>(i / side, i % side); }
    return vec2<u32>(i % QUADS, i / QUADS);
}

// The quads of a step that starts at quad k. Those past the end of the depth are zeros.
fn fetch(lane: u32, size: Extent, origin: Corner, k: u32) -> Step {
    var step: Step;
    for (var n = 0u; n < X_TURNS; n++) {
        let at = place_of(lane + n * LANES, HEIGHT, ROWS_FIRST);
        let row = min(origin.row + at.y, size.rows - 1u);
        let value = row_quad(origin.matrix, row, min(k + at.x, size.quads - 1u));
        step.x[n] = select(quad_t(), value, k + at.x < size.quads);
    }
    for (var n = 0u; n < W_TURNS; n++) {
        let at = place_of(lane + n * LANES, WIDTH, COLUMNS_FIRST);
        let column = min(origin.column + at.y, size.columns - 1u);
        let value = column_quad(origin.matrix, column, min(k + at.x, size.quads - 1u));
        step.w[n] = select(quad_t(), value, k + at.x < size.quads);
    }
    return step;
}

fn keep(lane: u32, slice: u32, step: Step) {
    for (var n = 0u; n < X_TURNS; n++) {
        let at = place_of(lane + n * LANES, HEIGHT, ROWS_FIRST);
        some_x[slice][at.x].rows[at.y / DOWN][at.y % DOWN] = step.x[n];
    }
    for (var n = 0u; n < W_TURNS; n++) {
        let at = place_of(lane + n * LANES, WIDTH, COLUMNS_FIRST);
        some_w[slice][at.x].columns[at.y % 4u][at.y / 4u] = step.w[n];
    }
}

// Store one row of four columns, from the sums of all slices. All lanes call this.
fn finish(lane: u32, slice: u32, size: Extent, origin: Corner, row: u32, part: sum4_t) {
    var sum = part;
    if (SLICES > 1u) {
        if (slice > 0u) { others[slice - 1u][lane] = part; }
        workgroupBarrier();
        for (var s = 0u; s < SLICES - 1u; s++) { sum += others[s][lane]; }
        workgroupBarrier();
    }
    let column = origin.column + 4u * (lane % ACROSS);
    if (slice == 0u && row < size.rows && column < size.columns) { finish_four(origin.matrix, row, column, sum); }
}

@compute @workgroup_size(LANES * SLICES)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) index: u32,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let size = extent();
    let origin = corner(size, flat_group(group, groups), HEIGHT, WIDTH);
    if (origin.matrix >= size.matrices) { return; }
    let slice = index / LANES;
    let lane = index % LANES;
    let right = lane % ACROSS;
    let down = lane / ACROSS;
    var sum: array<sum4_t, TALL>;
    var next = fetch(lane, size, origin, slice * QUADS);
    let steps = (size.quads + SLICES * QUADS - 1u) / (SLICES * QUADS);
    for (var step = 1u; step < steps + 1u; step++) {
        keep(lane, slice, next);
        workgroupBarrier();
        next = fetch(lane, size, origin, (step * SLICES + slice) * QUADS);
        for (var q = 0u; q < QUADS; q++) {
            let w0 = some_w[slice][q].columns[0][right];
            let w1 = some_w[slice][q].columns[1][right];
            let w2 = some_w[slice][q].columns[2][right];
            let w3 = some_w[slice][q].columns[3][right];
            for (var r = 0u; r < TALL; r++) {
                let v = some_x[slice][q].rows[r][down];
                sum[r] += sum4_t(times(v, w0), times(v, w1), times(v, w2), times(v, w3));
            }
        }
        workgroupBarrier();
    }
    // Unrolled in the text: with a variable index, all sums would be in slow memory on some GPUs.
//#each r 8
    if (r < TALL) { finish(lane, slice, size, origin, origin.row + down + r * DOWN, sum[min(r, TALL - 1u)]); }
//#end r
}
