// The range of each block of x; it includes 0. PARTS invocations find the range of a block: each reads every
// PARTS-th element. The kernel that reads the ranges merges the parts.
@group(0) @binding(0) var<storage, read> x: array<x_word>;                // [blocks at outer_strides, elements at inner_strides]
@group(0) @binding(1) var<storage, read_write> ranges: array<vec2<f32>>;  // [blocks, PARTS]
@group(0) @binding(2) var<uniform> p: Params;

struct Params {
    blocks: u32,
    count: u32,  // elements of a block
    outer_rank: u32,
    inner_rank: u32,
    outer_sizes: array<vec4<u32>, 2>,    // over blocks
    outer_strides: array<vec4<u32>, 2>,
    inner_sizes: array<vec4<u32>, 2>,    // over the elements of a block
    inner_strides: array<vec4<u32>, 2>,
}

fn walk(i: u32, rank: u32, sizes: array<vec4<u32>, 2>, strides: array<vec4<u32>, 2>) -> u32 {
    var rest = i;
    var index = 0u;
    for (var d = rank; d > 0u; d--) {
        let size = sizes[(d - 1u) >> 2u][(d - 1u) & 3u];
        index += (rest % size) * strides[(d - 1u) >> 2u][(d - 1u) & 3u];
        rest /= size;
    }
    return index;
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.blocks * PARTS) { return; }
    let first = walk(i / PARTS, p.outer_rank, p.outer_sizes, p.outer_strides);
    var range = vec2<f32>(0.0);
    for (var k = i % PARTS; k < p.count; k += PARTS) {
        let v = f32(x_at(first + walk(k, p.inner_rank, p.inner_sizes, p.inner_strides)));
        range = vec2<f32>(min(range.x, v), max(range.y, v));
    }
    ranges[i] = range;
}
