// y = the next element of `source` where the mask is set, and x elsewhere.
@group(0) @binding(0) var<storage, read> x: array<x_word>;            // broadcast to [sizes..]
@group(0) @binding(1) var<storage, read> mask: array<mask_word>;      // [sizes..]
@group(0) @binding(2) var<storage, read> before: array<i32>;          // [sizes..]: how many are set before
@group(0) @binding(3) var<storage, read> source: array<source_word>;  // [available]
@group(0) @binding(4) var<storage, read_write> y: array<y_word>;      // [sizes..]
@group(0) @binding(5) var<uniform> p: Params;

struct Params { quads: u32, available: u32, rank: u32, sizes: array<vec4<u32>, 2>, strides: array<vec4<u32>, 2> }

fn value(i: u32) -> y_t {
    if (!(mask_at(i) == mask_t(0))) { return y_t(source_at(min(u32(before[i]), p.available - 1u))); }
    var rest = i;
    var index = 0u;
    for (var d = p.rank; d > 0u; d--) {
        let size = p.sizes[(d - 1u) >> 2u][(d - 1u) & 3u];
        index += rest % size * p.strides[(d - 1u) >> 2u][(d - 1u) & 3u];
        rest /= size;
    }
    return y_t(x_at(index));
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.quads) { return; }
    y_put(i, y_t4(value(4u * i), value(4u * i + 1u), value(4u * i + 2u), value(4u * i + 3u)));
}
