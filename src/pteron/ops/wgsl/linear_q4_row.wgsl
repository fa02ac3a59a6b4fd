// y = x @ W^T + bias with 4-bit W, for few rows: one invocation per element of y.
// All lanes of a workgroup read the same x, and each reads a column's weights eight to a word.
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;      // [rows, depth / 4]
@group(0) @binding(1) var<storage, read> weights: array<u32>;      // [columns, packed / 4]
@group(0) @binding(2) var<storage, read> scales: array<f32>;       // [depth / group, scale_row]
@group(0) @binding(3) var<storage, read> bias: array<f32>;         // [columns]
@group(0) @binding(4) var<storage, read_write> y: array<f32>;      // [rows, columns]
@group(0) @binding(5) var<uniform> p: Params;

struct Params { rows: u32, columns: u32, depth: u32, packed: u32, group: u32, scale_row: u32 }

//#include q4

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let across = (p.columns + WG - 1u) / WG;
    let block = flat_group(group, groups);
    let row = block / across;
    let column = (block % across) * WG + lane;
    if (row >= p.rows || column >= p.columns) { return; }
    let words = p.group / 8u;
    var word = column * (p.packed / 4u);
    var k = row * (p.depth / 4u);
    var sum = 0.0;
    for (var g = 0u; g < p.depth / p.group; g++) {
        var part = 0.0;
        for (var i = 0u; i < words; i++) {
            let w = weights[word];
            part += dot(x[k], low_quad(w)) + dot(x[k + 1u], high_quad(w));
            word++;
            k += 2u;
        }
        sum += part * scales[g * p.scale_row + column];
    }
    if (HAS_BIAS) { sum += bias[column]; }
    y[row * p.columns + column] = sum;
}
