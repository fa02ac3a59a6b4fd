// y = x with elements added or removed at the ends of each dimension. The rule supplies `inner(i, size)`: the
// index of the element at position i, or -1 for the padding value, which is `padding()`.
@group(0) @binding(0) var<storage, read> x: array<x_word>;        // [in_sizes..]
@group(0) @binding(1) var<storage, read_write> y: array<y_word>;  // [sizes..]
@group(0) @binding(2) var<uniform> p: Params;

struct Params {
    quads: u32,
    rank: u32,
    value: f32,
    low: u32,  // the padding value of integers, in two words
    high: u32,
    sizes: array<vec4<u32>, 2>,
    in_sizes: array<vec4<u32>, 2>,
    before: array<vec4<i32>, 2>,
}

fn source(i: u32) -> y_t {
    var rest = i;
    var index = 0u;
    var stride = 1u;
    for (var d = p.rank; d > 0u; d--) {
        let row = (d - 1u) >> 2u;
        let column = (d - 1u) & 3u;
        let size = p.in_sizes[row][column];
        let at = inner(i32(rest % p.sizes[row][column]) - p.before[row][column], i32(size));
        if (at < 0) { return padding(); }
        index += u32(at) * stride;
        stride *= size;
        rest /= p.sizes[row][column];
    }
    return y_t(x_at(index));
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.quads) { return; }
    y_put(i, y_t4(source(4u * i), source(4u * i + 1u), source(4u * i + 2u), source(4u * i + 3u)));
}
