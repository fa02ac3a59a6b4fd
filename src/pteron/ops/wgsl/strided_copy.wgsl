// y[i0, i1, ..] = x[offset + i0*stride0 + i1*stride1 + ..]: permute, slice, select, expand, flip, repeat.
@group(0) @binding(0) var<storage, read> x: array<x_word>;        // at offset and strides
@group(0) @binding(1) var<storage, read_write> y: array<y_word>;  // [sizes..]
@group(0) @binding(2) var<uniform> p: Params;

struct Params {
    quads: u32,
    rank: u32,
    offset: i32,
    sizes: array<vec4<u32>, 2>,
    strides: array<vec4<i32>, 2>,
}

fn source(i: u32) -> y_t {
    var rest = i;
    var index = p.offset;
    for (var d = p.rank; d > 0u; d--) {
        let size = p.sizes[(d - 1u) >> 2u][(d - 1u) & 3u];
        index += i32(rest % size) * p.strides[(d - 1u) >> 2u][(d - 1u) & 3u];
        rest /= size;
    }
    return y_t(x_at(u32(index)));
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.quads) { return; }
    y_put(i, y_t4(source(4u * i), source(4u * i + 1u), source(4u * i + 2u), source(4u * i + 3u)));
}
