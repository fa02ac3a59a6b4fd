// The coordinates of the elements that are not 0, in order.
@group(0) @binding(0) var<storage, read> x: array<x_word>;    // [sizes..]
@group(0) @binding(1) var<storage, read> before: array<i32>;  // [count]: how many are not 0 before each
@group(0) @binding(2) var<storage, read_write> y: array<i32>; // [count, rank]
@group(0) @binding(3) var<uniform> p: Params;

struct Params { count: u32, rank: u32, sizes: array<vec4<u32>, 2> }

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.count || all(x_at(i) == x_t(0))) { return; }
    var rest = i;
    for (var d = p.rank; d > 0u; d--) {
        let size = p.sizes[(d - 1u) >> 2u][(d - 1u) & 3u];
        y[u32(before[i]) * p.rank + d - 1u] = i32(rest % size);
        rest /= size;
    }
}
