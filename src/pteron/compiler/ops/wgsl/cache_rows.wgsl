// Write each row of x to its place in the caches of several sequences. One invocation copies one quad.
@group(0) @binding(0) var<storage, read> x: array<x_word>;                // [S, 4 * row_quads]
@group(0) @binding(1) var<storage, read_write> cache: array<cache_word>;  // [slots, capacity, 4 * row_quads]
@group(0) @binding(2) var<storage, read> slots: array<i32>;               // [S]
@group(0) @binding(3) var<storage, read> positions: array<i32>;           // [S]
@group(0) @binding(4) var<uniform> p: Params;

struct Params { quads: u32, row_quads: u32, capacity: u32 }

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.quads) { return; }
    let row = i / p.row_quads;
    let place = (u32(slots[row]) * p.capacity + u32(positions[row])) * p.row_quads + i % p.row_quads;
    cache_put(place, cache_t4(x_quad(i)));
}
