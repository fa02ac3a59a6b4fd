// Matrix products of few rows. SLICES lanes divide the depth of the same four columns, and then add up their
// sums. A workgroup has QUADS times four columns. Neighbouring lanes read neighbouring memory.
@group(0) @binding(0) var<storage, read> a: array<a_word>;         // [batch, rows, depth]
@group(0) @binding(1) var<storage, read> b: array<b_word>;         // [batch, depth, columns], or TRANSPOSED
@group(0) @binding(2) var<storage, read> c: array<c_word>;         // broadcast to [batch, rows, columns]
@group(0) @binding(3) var<storage, read_write> y: array<ELEMENT>;  // [batch, rows, columns]
@group(0) @binding(4) var<uniform> p: Params;

//#include product
//#include operands
//#include finish_four

const LANES = QUADS * SLICES;
const SUMS = QUADS * ROWS;

var<workgroup> parts: array<vec4<f32>, SLICES * SUMS>;  // [slice, row, quad]

@compute @workgroup_size(LANES)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let start = corner(flat_group(group, groups), ROWS, 4u * QUADS);
    if (start.matrix >= p.batch) { return; }
    let quad = lane % QUADS;
    let slice = lane / QUADS;
    var sum: array<vec4<f32>, ROWS>;
    for (var k = 4u * slice; k < p.depth; k += 4u * SLICES) {
        let block = b_block(start.matrix, k, start.column + 4u * quad);
        for (var r = 0u; r < ROWS; r++) { sum[r] += block * a_four(start.matrix, start.row + r, k); }
    }
    for (var r = 0u; r < ROWS; r++) { parts[slice * SUMS + r * QUADS + quad] = sum[r]; }
    for (var half = SLICES / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        for (var turn = 0u; turn < (half * SUMS + LANES - 1u) / LANES; turn++) {
            let i = lane + turn * LANES;
            if (i < half * SUMS) { parts[i] += parts[i + half * SUMS]; }
        }
    }
    workgroupBarrier();
    if (lane >= SUMS) { return; }
    finish_four(start.matrix, start.row + lane / QUADS, start.column + 4u * quad, parts[lane]);
}
