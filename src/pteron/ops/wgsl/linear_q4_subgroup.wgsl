// y = x @ W^T + bias with 4-bit W: one invocation computes ROWS rows of four neighbouring columns.
// Eight lanes load eight values of x between them and hand them round, so a value is loaded once for all;
// a word brings eight weights of a column. Needs subgroups of at least eight lanes.
@group(0) @binding(0) var<storage, read> x: array<f32>;            // [rows, depth]
@group(0) @binding(1) var<storage, read> weights: array<u32>;      // [columns, packed / 4]
@group(0) @binding(2) var<storage, read> scales: array<f32>;       // [depth / group, scale_row]
@group(0) @binding(3) var<storage, read> bias: array<f32>;         // [columns]
@group(0) @binding(4) var<storage, read_write> y: array<f32>;      // [rows, columns]
@group(0) @binding(5) var<uniform> p: Params;

struct Params { rows: u32, columns: u32, depth: u32, packed: u32, group: u32, scale_row: u32 }

//#include q4_columns
//#include four_columns

@compute @workgroup_size(LANES)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
    @builtin(subgroup_invocation_id) member: u32,
) {
    let across = (p.columns + 4u * LANES - 1u) / (4u * LANES);
    let block = flat_group(group, groups);
    let row = (block / across) * ROWS;
    if (row >= p.rows) { return; }
    let column = ((block % across) * LANES + lane) * 4u;
    // Rows and columns past the end repeat the last one: every lane stays in step, and stores skip them.
    let c = min(vec4<u32>(column) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(p.columns - 1u));
    var word = c * (p.packed / 4u);
    var first: array<u32, ROWS>;
    var sum: array<vec4<f32>, ROWS>;
    for (var r = 0u; r < ROWS; r++) {
        first[r] = min(row + r, p.rows - 1u) * p.depth + (member & 7u);
        sum[r] = vec4<f32>(0.0);
    }
    var k = 0u;
    for (var g = 0u; g < p.depth / p.group; g++) {
        var part: array<vec4<f32>, ROWS>;
        for (var r = 0u; r < ROWS; r++) { part[r] = vec4<f32>(0.0); }
        for (var i = 0u; i < p.group / 8u; i++) {
            let w = unpack(vec4<u32>(weights[word.x], weights[word.y], weights[word.z], weights[word.w]));
            for (var r = 0u; r < ROWS; r++) { part[r] = dot_eight(x[first[r] + k], w, part[r]); }
            word += vec4<u32>(1u);
            k += 8u;
        }
        let at = vec4<u32>(g * p.scale_row) + c;
        let scale = vec4<f32>(scales[at.x], scales[at.y], scales[at.z], scales[at.w]);
        for (var r = 0u; r < ROWS; r++) { sum[r] += part[r] * scale; }
    }
    var b = vec4<f32>(0.0);
    if (HAS_BIAS) { b = vec4<f32>(bias[c.x], bias[c.y], bias[c.z], bias[c.w]); }
    for (var r = 0u; r < ROWS; r++) { store_four(row + r, column, sum[r] + b); }
}
