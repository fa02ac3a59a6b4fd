// Matrix products of many rows. In each step, a workgroup loads a slice of a and a slice of b into its
// memory, and each lane multiplies 4 * HEIGHT rows by four columns. Slices have the dtype of the operands.
// Sums are float32.
@group(0) @binding(0) var<storage, read> a: array<a_word>;         // [batch, rows, depth]
@group(0) @binding(1) var<storage, read> b: array<b_word>;         // [batch, depth, columns], or TRANSPOSED
@group(0) @binding(2) var<storage, read> c: array<c_word>;         // broadcast to [batch, rows, columns]
@group(0) @binding(3) var<storage, read_write> y: array<ELEMENT>;  // [batch, rows, columns]
@group(0) @binding(4) var<uniform> p: Params;

//#include product
//#include operands
//#include finish_four

const LANES = DOWN * ACROSS;
const TALL = DOWN * HEIGHT;                 // rows / 4
const FOURS = LANES / (TALL + ACROSS);      // depth / 4 of a step: every lane loads one 4 x 4 block
const STEP = 4u * FOURS;
// A line has one element more than it needs, so that lanes that store to several lines use different memory
// banks.
const A_LINE = TALL + 1u;
const B_LINE = ACROSS + 1u;

var<workgroup> some_a: array<vec4<ELEMENT>, STEP * A_LINE>;  // [depth, rows / 4]
var<workgroup> some_b: array<vec4<ELEMENT>, STEP * B_LINE>;  // [depth, columns / 4]

// Neighbouring lanes read neighbouring memory: along the depth, or along the columns if depth is not the last
// dimension.
fn bring_a(i: u32, start: Corner, k: u32) {
    let step = 4u * (i % FOURS);
    let four = i / FOURS;
    let block = a_block(start.matrix, start.row + 4u * four, k + step);
    for (var j = 0u; j < 4u; j++) { some_a[(step + j) * A_LINE + four] = vec4<ELEMENT>(block[j]); }
}

fn bring_b(i: u32, start: Corner, k: u32) {
    let step = 4u * select(i / ACROSS, i % FOURS, TRANSPOSED);
    let four = select(i % ACROSS, i / FOURS, TRANSPOSED);
    let block = b_block(start.matrix, k + step, start.column + 4u * four);
    for (var j = 0u; j < 4u; j++) { some_b[(step + j) * B_LINE + four] = vec4<ELEMENT>(block[j]); }
}

@compute @workgroup_size(LANES)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let start = corner(flat_group(group, groups), 4u * TALL, 4u * ACROSS);
    if (start.matrix >= p.batch) { return; }
    let right = lane % ACROSS;
    let down = lane / ACROSS * HEIGHT;
    var sum: array<mat4x4<f32>, HEIGHT>;
    for (var k = 0u; k < p.depth; k += STEP) {
        if (lane < FOURS * TALL) { bring_a(lane, start, k); } else { bring_b(lane - FOURS * TALL, start, k); }
        workgroupBarrier();
        for (var j = 0u; j < STEP; j++) {
            let w = vec4<f32>(some_b[j * B_LINE + right]);
            for (var h = 0u; h < HEIGHT; h++) {
                let x = vec4<f32>(some_a[j * A_LINE + down + h]);
                sum[h] += mat4x4<f32>(x.x * w, x.y * w, x.z * w, x.w * w);
            }
        }
        workgroupBarrier();
    }
    for (var h = 0u; h < HEIGHT; h++) {
        let row = start.row + 4u * (down + h);
        for (var r = 0u; r < 4u; r++) { finish_four(start.matrix, row + r, start.column + 4u * right, sum[h][r]); }
    }
}
