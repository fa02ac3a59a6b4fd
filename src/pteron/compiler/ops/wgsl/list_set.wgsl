// The indices of the set elements of a mask, in order.
@group(0) @binding(0) var<storage, read> mask: array<mask_word>;    // [count]
@group(0) @binding(1) var<storage, read> before: array<i32>;        // [count]: how many are set before each
@group(0) @binding(2) var<storage, read_write> places: array<i32>;  // [as many as are set]
@group(0) @binding(3) var<uniform> p: Params;

struct Params { count: u32 }

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.count || mask_at(i) == mask_t(0)) { return; }
    places[before[i]] = i32(i);
}
