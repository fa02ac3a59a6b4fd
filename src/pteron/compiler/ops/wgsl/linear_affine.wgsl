// y = x @ W^T + bias with coded W. One invocation computes ROWS rows of one column. All lanes of a workgroup
// read the same x. Weights are decoded once for all rows.
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;  // [rows, depth / 4]
@group(0) @binding(1) var<storage, read> weights: array<u32>;  // [columns, row_bytes / 4]
//#include affine_operands
//#include affine_quads
//#include experts
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
    // Rows past the end repeat the last row, so loads stay in bounds. They are not stored.
    var first: array<u32, ROWS>;
    var sum: array<f32, ROWS>;
    for (var r = 0u; r < ROWS; r++) {
        first[r] = x_row(min(row + r, p.rows - 1u)) * (p.depth / 4u);
        sum[r] = 0.0;
    }
    let weight_row = first_weight_row(row) + column;
    var k = 0u;
    for (var g = 0u; g < p.depth / p.group; g++) {
        let line = line_of(weight_row, g);
        for (var i = 0u; i < p.group / 4u; i++) {
            let w = fma(codes_quad(weight_row, k), vec4<f32>(line.scale), vec4<f32>(line.start));
            for (var r = 0u; r < ROWS; r++) { sum[r] += dot(x[first[r] + k], w); }
            k++;
        }
    }
    var b = 0.0;
//#if HAS_BIAS
    b = bias[column];
//#end
    for (var r = 0u; r < ROWS; r++) { store(row + r, column, sum[r] + b); }
}
