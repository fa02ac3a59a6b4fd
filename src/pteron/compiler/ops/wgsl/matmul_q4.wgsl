// y = x @ W with 4-bit W. One invocation computes eight neighbouring columns (one word of weights) of ROWS
// rows. Rows of W are whole words, and all weights of a word are in one group.
@group(0) @binding(0) var<storage, read> x: array<f32>;               // [rows, depth]
@group(0) @binding(1) var<storage, read> weights: array<u32>;         // [depth, columns / 8]
@group(0) @binding(2) var<storage, read> scales: array<f32>;          // [columns / group, scale_row]
@group(0) @binding(3) var<storage, read_write> y: array<vec4<f32>>;   // [rows, columns / 4]
@group(0) @binding(4) var<uniform> p: Params;

struct Params { rows: u32, columns: u32, depth: u32, packed: u32, group: u32, scale_row: u32 }

//#include q4

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    let across = p.columns / 8u;
    let row = (i / across) * ROWS;
    let word = i % across;
    if (row >= p.rows) { return; }
    let scale_first = (8u * word / p.group) * p.scale_row;
    var low: array<vec4<f32>, ROWS>;
    var high: array<vec4<f32>, ROWS>;
    for (var k = 0u; k < p.depth; k++) {
        let w = weights[k * across + word];
        let scale = scales[scale_first + k];
        let lo = low_quad(w) * scale;
        let hi = high_quad(w) * scale;
        for (var r = 0u; r < ROWS; r++) {
            let v = x[min(row + r, p.rows - 1u) * p.depth + k];
            low[r] += v * lo;
            high[r] += v * hi;
        }
    }
    for (var r = 0u; r < min(ROWS, p.rows - row); r++) {
        y[(row + r) * (p.columns / 4u) + 2u * word] = low[r];
        y[(row + r) * (p.columns / 4u) + 2u * word + 1u] = high[r];
    }
}
