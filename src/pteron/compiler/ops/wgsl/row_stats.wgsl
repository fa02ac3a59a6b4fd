// One pair of statistics for each row of x, viewed as [outer, width, inner]. One invocation computes one row.
// The rule supplies `lift` and `merge`, which compute a state from the elements, and `finish`, which gives
// the statistics.
@group(0) @binding(0) var<storage, read> x: array<x_word>;              // [outer, width, inner]
@group(0) @binding(1) var<storage, read_write> stats: array<vec2<f32>>; // [outer * inner]
@group(0) @binding(2) var<uniform> p: Params;

struct Params { rows: u32, width: u32, inner: u32, eps: f32 }

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let row = flat_index(id, groups);
    if (row >= p.rows) { return; }
    let first = (row / p.inner) * p.width * p.inner + row % p.inner;
    var state = lift(x_at(first), 0u);
    for (var k = 1u; k < p.width; k++) { state = merge(state, lift(x_at(first + k * p.inner), k)); }
    stats[row] = finish(state);
}
