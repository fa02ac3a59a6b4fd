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

fn source(i: u32) -> i32 {
    var rest = i;
    var index = p.offset;
    for (var d = p.rank; d > 0u; d--) {
        let size = p.sizes[(d - 1u) >> 2u][(d - 1u) & 3u];
        let above = rest / size;
        index += i32(rest - above * size) * p.strides[(d - 1u) >> 2u][(d - 1u) & 3u];
        rest = above;
    }
    return index;
}

// The indices of the elements that become elements 4i .. 4i+3 of y. Divisions are expensive, so if the four
// elements are in one row of y, only the first is searched.
fn sources(i: u32) -> vec4<u32> {
    let last = max(p.rank, 1u) - 1u;
    let size = p.sizes[last >> 2u][last & 3u];
    var indices = source(4u * i) + vec4<i32>(0, 1, 2, 3) * p.strides[last >> 2u][last & 3u];
    if (size % 4u != 0u && 4u * i % size + 3u >= size) {
        for (var n = 1u; n < 4u; n++) { indices[n] = source(4u * i + n); }
    }
    return vec4<u32>(indices);
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.quads) { return; }
    let at = sources(i);
    y_put(i, y_t4(y_t(x_at(at.x)), y_t(x_at(at.y)), y_t(x_at(at.z)), y_t(x_at(at.w))));
}
