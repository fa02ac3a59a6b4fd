// One pair of statistics for each row of x, viewed as [outer, width, inner]. The rule supplies
// `statistics(first, stride)`, which walks the row that starts at element `first`.
@group(0) @binding(0) var<storage, read> x: array<x_word>;              // [outer, width, inner]
@group(0) @binding(1) var<storage, read_write> stats: array<vec2<f32>>; // [outer * inner]
@group(0) @binding(2) var<uniform> p: Params;

struct Params { rows: u32, width: u32, inner: u32, eps: f32 }

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let row = flat_index(id, groups);
    if (row >= p.rows) { return; }
    stats[row] = statistics((row / p.inner) * p.width * p.inner + row % p.inner, p.inner);
}
