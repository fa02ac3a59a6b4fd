// For every element of a mask, the number of set elements before it.
@group(0) @binding(0) var<storage, read> mask: array<mask_word>;    // [count]
@group(0) @binding(1) var<storage, read> ends: array<i32>;          // [blocks]: how many up to the end of each
@group(0) @binding(2) var<storage, read_write> before: array<i32>;  // [count]
@group(0) @binding(3) var<uniform> p: Params;

struct Params { count: u32, block: u32 }

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i * p.block >= p.count) { return; }
    var sum = 0;
    if (i > 0u) { sum = ends[i - 1u]; }
    for (var k = i * p.block; k < min((i + 1u) * p.block, p.count); k++) {
        before[k] = sum;
        sum += i32(!all(mask_at(k) == mask_t(0)));
    }
}
