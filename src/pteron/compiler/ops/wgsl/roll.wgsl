// y[i0, i1, ..] = x[(i0 + back0) % size0, (i1 + back1) % size1, ..]
@group(0) @binding(0) var<storage, read> x: array<x_word>;        // [sizes..]
@group(0) @binding(1) var<storage, read_write> y: array<y_word>;  // [sizes..]
@group(0) @binding(2) var<uniform> p: Params;

struct Params {
    quads: u32,
    rank: u32,
    sizes: array<vec4<u32>, 2>,
    strides: array<vec4<u32>, 2>,
    back: array<vec4<u32>, 2>,
}

fn source(i: u32) -> y_t {
    var rest = i;
    var index = 0u;
    for (var d = p.rank; d > 0u; d--) {
        let word = (d - 1u) >> 2u;
        let part = (d - 1u) & 3u;
        let size = p.sizes[word][part];
        index += (rest % size + p.back[word][part]) % size * p.strides[word][part];
        rest /= size;
    }
    return y_t(x_at(index));
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.quads) { return; }
    y_put(i, y_t4(source(4u * i), source(4u * i + 1u), source(4u * i + 2u), source(4u * i + 3u)));
}
