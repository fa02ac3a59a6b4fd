// y = x @ W^T + bias with 4-bit W: one invocation computes ROWS rows of one column. All lanes of a workgroup
// read the same x, and a word brings eight weights of a column, which are unpacked once for all rows.
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;      // [rows, depth / 4]
@group(0) @binding(1) var<storage, read> weights: array<u32>;      // [columns, packed / 4]
//#include q4_operands
//#include q4
//#include store

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
    // Rows past the end repeat the last one: loads stay in bounds, and the stores below skip them.
    var first: array<u32, ROWS>;
    var sum: array<f32, ROWS>;
    for (var r = 0u; r < ROWS; r++) {
        first[r] = min(row + r, p.rows - 1u) * (p.depth / 4u);
        sum[r] = 0.0;
    }
    var word = column * (p.packed / 4u);
    var k = 0u;
    for (var g = 0u; g < p.depth / p.group; g++) {
        var part: array<f32, ROWS>;
        for (var r = 0u; r < ROWS; r++) { part[r] = 0.0; }
        for (var i = 0u; i < p.group / 8u; i++) {
            let w = weights[word];
            let lo = low_quad(w);
            let hi = high_quad(w);
            for (var r = 0u; r < ROWS; r++) {
                part[r] += dot(x[first[r] + k], lo) + dot(x[first[r] + k + 1u], hi);
            }
            word++;
            k += 2u;
        }
        let scale = scales[g * p.scale_row + column];
        for (var r = 0u; r < ROWS; r++) { sum[r] += part[r] * scale; }
    }
    var b = 0.0;
    if (HAS_BIAS) { b = bias[column]; }
    for (var r = 0u; r < ROWS; r++) { store(row + r, column, sum[r] + b); }
}
