// x @ W^T for many rows. A workgroup computes HEIGHT rows of WIDTH columns, and a lane 4 * TALL rows of 4 * BROAD
// columns. In each step, 64 lanes load QUADS quads of x and of W into the workgroup's memory, where they are decoded
// once for all lanes. With several SLICES, as many sets of 64 lanes divide the depth and add up their sums at the
// end: a small product then has more lanes. The loads of the next step are under way while one is computed. The rule
// defines TALL, BROAD, SLICES, WHOLE and QUADS, which divides 16. See dot_quads.
//
// If APART, the sums of a step are not the totals, but are added to them. If also SCALED, a step is one block of codes, and
// its sums are integers, to which the lines of rows and columns give a scale and a start first.
//#include dot_quads

const HEIGHT = 32u * TALL;
const WIDTH = 32u * BROAD;
const SIDE_LANES = 8u;
const LANES = SIDE_LANES * SIDE_LANES;  // of a slice
const OTHERS = SLICES - 1u + 1u / SLICES;  // slices; an array has at least one element
const X_TURNS = QUADS * HEIGHT / LANES;
const W_TURNS = QUADS * WIDTH / LANES;

// One step in depth of all rows, and of all columns, in fours. With the gap, lanes that store to several lines use
// different memory banks. Arrays are nested, so that most indices are constants: the driver's checks of these cost
// nothing.
struct XLine { fours: array<array<step4_t, SIDE_LANES>, TALL>, gap: step4_t }
struct WLine { fours: array<array<step4_t, SIDE_LANES>, BROAD>, gap: step4_t }
var<workgroup> some_x: array<array<array<XLine, STEPS>, QUADS>, SLICES>;
var<workgroup> some_w: array<array<array<WLine, STEPS>, QUADS>, SLICES>;
var<workgroup> others: array<array<array<total4_t, LANES>, BROAD>, OTHERS>;  // a row of totals of the other slices
//#if SCALED
var<workgroup> x_lines: array<array<array<array<vec2<f32>, 4>, SIDE_LANES>, TALL>, SLICES>;
var<workgroup> w_scales: array<array<array<vec4<f32>, SIDE_LANES>, BROAD>, SLICES>;
var<workgroup> w_starts: array<array<array<vec4<f32>, SIDE_LANES>, BROAD>, SLICES>;
//#end

struct Step {
    x: array<quad_t, X_TURNS>,
    w: array<quad_t, W_TURNS>,
//#if SCALED
    x_line: vec2<f32>,  // of row `lane`
    w_line: vec2<f32>,
//#end
}

// What a lane loads in a turn: quad `quad` of a row or column, whose place is also [32s][fours][ones].
struct Loaded { quad: u32, row: u32, thirty_two: u32, four: u32, one: u32 }

// Neighbouring lanes read neighbouring memory: along the depth, or across rows or columns if those are contiguous.
fn loaded(lane: u32, turn: u32, side: u32, across: bool) -> Loaded {
    if (across) {
        let row = lane % side;
        return Loaded(turn * LANES / side + lane / side, row, row / 32u, row % 32u / 4u, row % 4u);
    }
    let fours = turn * (16u / QUADS);
    let row = 4u * fours + lane / QUADS;
    return Loaded(lane % QUADS, row, fours / 8u, fours % 8u + lane / (4u * QUADS), lane / QUADS % 4u);
}

fn existing(size: Extent, quad: u32) -> u32 { return select(min(quad, size.quads - 1u), quad, WHOLE); }

// The quads of a step that starts at quad k. Those past the end of the depth are zeros; or if the depth is WHOLE steps,
// they have any value, because the step is not computed.
fn fetch(lane: u32, size: Extent, origin: Corner, k: u32) -> Step {
    var step: Step;
    for (var n = 0u; n < X_TURNS; n++) {
        let at = loaded(lane, n, HEIGHT, ROWS_FIRST);
        let row = min(origin.row + at.row, size.rows - 1u);
        let value = row_quad(origin.matrix, row, existing(size, k + at.quad));
        step.x[n] = select(quad_t(), value, WHOLE || k + at.quad < size.quads);
    }
    for (var n = 0u; n < W_TURNS; n++) {
        let at = loaded(lane, n, WIDTH, COLUMNS_FIRST);
        let column = min(origin.column + at.row, size.columns - 1u);
        let value = column_quad(origin.matrix, column, existing(size, k + at.quad));
        step.w[n] = select(quad_t(), value, WHOLE || k + at.quad < size.quads);
    }
//#if SCALED
    let first = existing(size, k);
    let line = row_line(origin.matrix, min(origin.row + lane % HEIGHT, size.rows - 1u), first);
    step.x_line = select(vec2<f32>(0.0), line, WHOLE || k < size.quads);
    step.w_line = column_line(origin.matrix, min(origin.column + lane % WIDTH, size.columns - 1u), first);
//#end
    return step;
}

fn keep(lane: u32, slice: u32, step: Step) {
    for (var n = 0u; n < X_TURNS; n++) {
        let at = loaded(lane, n, HEIGHT, ROWS_FIRST);
//#each j STEPS
        some_x[slice][at.quad][j].fours[at.thirty_two][at.four][at.one] = step_of(step.x[n], j);
//#end j
    }
    for (var n = 0u; n < W_TURNS; n++) {
        let at = loaded(lane, n, WIDTH, COLUMNS_FIRST);
//#each j STEPS
        some_w[slice][at.quad][j].fours[at.thirty_two][at.four][at.one] = step_of(step.w[n], j);
//#end j
    }
//#if SCALED
    let row = lane % HEIGHT;
    x_lines[slice][row / 32u][row % 32u / 4u][row % 4u] = step.x_line;
    let column = lane % WIDTH;
    w_scales[slice][column / 32u][column % 32u / 4u][column % 4u] = step.w_line.x;
    w_starts[slice][column / 32u][column % 32u / 4u][column % 4u] = step.w_line.y;
//#end
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
    let right = lane % SIDE_LANES;
    let down = lane / SIDE_LANES;
//#if APART
    var total: array<total4_t, 4u * TALL * BROAD>;
//#else
    var sum: array<sum4_t, 4u * TALL * BROAD>;
//#end
    var next = fetch(lane, size, origin, slice * QUADS);
    let steps = (size.quads + SLICES * QUADS - 1u) / (SLICES * QUADS);
    for (var step = 1u; step < steps + 1u; step++) {
        keep(lane, slice, next);
        workgroupBarrier();
        next = fetch(lane, size, origin, (step * SLICES + slice) * QUADS);
//#if APART
        var sum = array<sum4_t, 4u * TALL * BROAD>();  // zeros in every step: wgpu gives a variable its zeros only once
//#end
        for (var q = 0u; q < QUADS; q++) {
            for (var j = 0u; j < STEPS; j++) {
//#each h TALL
                let v = some_x[slice][q][j].fours[h][down];
//#each c BROAD
                let w = some_w[slice][q][j].fours[c][right];
//#each i 4
                sum[(4u * h + i) * BROAD + c] = plus_product(sum[(4u * h + i) * BROAD + c], v[i], w);
//#end i
//#end c
//#end h
            }
        }
//#if SCALED
//#each h TALL
//#each i 4
        let line = x_lines[slice][h][down][i];
//#each c BROAD
        let scaled = vec4<f32>(sum[(4u * h + i) * BROAD + c]) * w_scales[slice][c][right];
        total[(4u * h + i) * BROAD + c] += line.x * scaled + line.y * w_starts[slice][c][right];
//#end c
//#end i
//#end h
//#elif APART
        for (var n = 0u; n < 4u * TALL * BROAD; n++) { total[n] += total4_t(sum[n]); }
//#end
        workgroupBarrier();
    }
//#if not APART
    var total = sum;
//#end
    // Store row after row. The row's totals are the first ones, and the others move up: with a variable index, all totals
    // would be in slow memory on some GPUs.
    for (var n = 0u; n < min(4u * TALL, size.rows); n++) {
        let row = origin.row + n / 4u * 32u + 4u * down + n % 4u;
//#each c BROAD
        if (slice > 0u) { others[slice - 1u][c][lane] = total[c]; }
//#end c
        workgroupBarrier();
//#each c BROAD
        let column = origin.column + 32u * c + 4u * right;
        if (slice == 0u && row < size.rows && column < size.columns) {
            var whole = total[c];
            for (var s = 0u; s < SLICES - 1u; s++) { whole += others[s][c][lane]; }
            finish_four(origin.matrix, row, column, whole);
        }
//#end c
        workgroupBarrier();
//#each i LATER
        total[i] = total[i + BROAD];
//#end i
    }
}
