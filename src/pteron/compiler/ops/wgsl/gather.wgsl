// y[i..] = x[i . x_strides + index[i . index_strides] * stride], for index_select, gather, index and
// embedding.
@group(0) @binding(0) var<storage, read> x: array<x_word>;          // at x_strides
@group(0) @binding(1) var<storage, read> index: array<index_word>;  // at index_strides
@group(0) @binding(2) var<storage, read_write> y: array<y_word>;    // [sizes..]
@group(0) @binding(3) var<uniform> p: Params;

struct Params {
    quads: u32,
    rank: u32,
    length: u32,  // of the indexed dimension; negative indices count from its end
    stride: u32,  // of the indexed dimension
    sizes: array<vec4<u32>, 2>,
    x_strides: array<vec4<u32>, 2>,
    index_strides: array<vec4<u32>, 2>,
}

//#include broadcast
//#include wrap

fn value(i: u32) -> y_t {
    let along = wrap(i32(index_at(operand_index(i, p.index_strides))), p.length);
    return y_t(x_at(operand_index(i, p.x_strides) + along * p.stride));
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.quads) { return; }
    y_put(i, y_t4(value(4u * i), value(4u * i + 1u), value(4u * i + 2u), value(4u * i + 3u)));
}
