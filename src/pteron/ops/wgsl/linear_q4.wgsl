// y = x @ W^T + bias with 4-bit W: one invocation computes four rows of one column, so that each word
// of weights is unpacked once for four rows.
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
    let row = (block / across) * 4u;
    let column = (block % across) * WG + lane;
    if (row >= p.rows || column >= p.columns) { return; }
    let words = p.group / 8u;
    let k4 = p.depth / 4u;
    var r = min(vec4<u32>(row) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(p.rows - 1u)) * k4;
    var word = column * (p.packed / 4u);
    var sum = vec4<f32>(0.0);
    for (var g = 0u; g < p.depth / p.group; g++) {
        var part = vec4<f32>(0.0);
        for (var i = 0u; i < words; i++) {
            let w = weights[word];
            let lo = low_quad(w);
            let hi = high_quad(w);
            part += vec4<f32>(dot(x[r.x], lo), dot(x[r.y], lo), dot(x[r.z], lo), dot(x[r.w], lo));
            part += vec4<f32>(dot(x[r.x + 1u], hi), dot(x[r.y + 1u], hi), dot(x[r.z + 1u], hi), dot(x[r.w + 1u], hi));
            word++;
            r += vec4<u32>(2u);
        }
        sum += part * scales[g * p.scale_row + column];
    }
    if (HAS_BIAS) { sum += vec4<f32>(bias[column]); }
    y[row * p.columns + column] = sum.x;
    if (row + 1u < p.rows) { y[(row + 1u) * p.columns + column] = sum.y; }
    if (row + 2u < p.rows) { y[(row + 2u) * p.columns + column] = sum.z; }
    if (row + 3u < p.rows) { y[(row + 3u) * p.columns + column] = sum.w; }
}
