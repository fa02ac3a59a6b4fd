// y = (x @ W^T) * scale per column, with W in 8 or 4 bits. One invocation computes ROWS rows of one column.
// The depth is a multiple of 4. The rule supplies `columns_quad(column, k)`: elements 4k .. 4k+3 of a column.
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;           // [rows, depth / 4]
@group(0) @binding(1) var<storage, read> weight: array<weight_word>;    // [columns, packed] bytes
@group(0) @binding(2) var<storage, read> scales: array<f32>;            // [columns]
@group(0) @binding(3) var<storage, read_write> y: array<f32>;           // [rows, columns]
@group(0) @binding(4) var<uniform> p: Params;

struct Params { rows: u32, columns: u32, depth: u32, packed: u32 }

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let across = (p.columns + WG - 1u) / WG;
    let block = flat_group(group, groups);
    let row = (block / across) * ROWS;
    let column = (block % across) * WG + lane;
    if (row >= p.rows || column >= p.columns) { return; }
    let k4 = p.depth / 4u;
    var sums: array<f32, ROWS>;
    for (var k = 0u; k < k4; k++) {
        let w = columns_quad(column, k);
        for (var r = 0u; r < ROWS; r++) { sums[r] += dot(x[min(row + r, p.rows - 1u) * k4 + k], w); }
    }
    for (var r = 0u; r < min(ROWS, p.rows - row); r++) { y[(row + r) * p.columns + column] = sums[r] * scales[column]; }
}
