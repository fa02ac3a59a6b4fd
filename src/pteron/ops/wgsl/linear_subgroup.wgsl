// y = x @ weight^T + bias: one invocation computes ROWS rows of four neighbouring columns. Eight lanes
// load eight values of x between them and hand them round. Depth is a multiple of 8. Needs subgroups of
// at least eight lanes.
@group(0) @binding(0) var<storage, read> x: array<f32>;             // [rows, depth]
@group(0) @binding(1) var<storage, read> weight: array<vec4<f32>>;  // [columns, depth / 4]
@group(0) @binding(2) var<storage, read> bias: array<f32>;          // [columns]
@group(0) @binding(3) var<storage, read_write> y: array<f32>;       // [rows, columns]
@group(0) @binding(4) var<uniform> p: Params;

struct Params { rows: u32, columns: u32, depth: u32 }

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
    var at = c * (p.depth / 4u);
    var first: array<u32, ROWS>;
    var sum: array<vec4<f32>, ROWS>;
    for (var r = 0u; r < ROWS; r++) {
        first[r] = min(row + r, p.rows - 1u) * p.depth + (member & 7u);
        sum[r] = vec4<f32>(0.0);
    }
    for (var k = 0u; k < p.depth; k += 8u) {
        let lo = transpose(mat4x4<f32>(weight[at.x], weight[at.y], weight[at.z], weight[at.w]));
        at += vec4<u32>(1u);
        let hi = transpose(mat4x4<f32>(weight[at.x], weight[at.y], weight[at.z], weight[at.w]));
        at += vec4<u32>(1u);
        let w = Eight(lo[0], lo[1], lo[2], lo[3], hi[0], hi[1], hi[2], hi[3]);
        for (var r = 0u; r < ROWS; r++) { sum[r] = dot_eight(x[first[r] + k], w, sum[r]); }
    }
    var b = vec4<f32>(0.0);
    if (HAS_BIAS) { b = vec4<f32>(bias[c.x], bias[c.y], bias[c.z], bias[c.w]); }
    for (var r = 0u; r < ROWS; r++) { store_four(row + r, column, sum[r] + b); }
}
