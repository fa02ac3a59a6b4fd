// y = apply(a, b, c) in 64-bit integers, with numpy's broadcasting. The rule supplies `apply`.
@group(0) @binding(0) var<storage, read> a: array<a_word>;        // broadcast to [sizes..]
//#if OPERANDS > 1
@group(0) @binding(1) var<storage, read> b: array<b_word>;        // broadcast to [sizes..]
//#end
//#if OPERANDS > 2
@group(0) @binding(2) var<storage, read> c: array<c_word>;        // broadcast to [sizes..]
//#end
@group(0) @binding(3) var<storage, read_write> y: array<y_word>;  // [sizes..]
@group(0) @binding(4) var<uniform> p: Params;

struct Params {
    quads: u32,
    rank: u32,                      // after dimensions with the same broadcasting are merged
    scalars: array<vec4<u32>, 2>,   // the scalars of the operator, two words each
    sizes: array<vec4<u32>, 2>,
    a_strides: array<vec4<u32>, 2>,
//#if OPERANDS > 1
    b_strides: array<vec4<u32>, 2>,
//#end
//#if OPERANDS > 2
    c_strides: array<vec4<u32>, 2>,
//#end
}

//#include broadcast

fn value(i: u32) -> y_t {
    let at_a = operand_index(i, p.a_strides);
//#if OPERANDS == 3
    return apply(a_at(at_a), b_at(operand_index(i, p.b_strides)), c_at(operand_index(i, p.c_strides)));
//#elif OPERANDS == 2
    return apply(a_at(at_a), b_at(operand_index(i, p.b_strides)));
//#else
    return apply(a_at(at_a));
//#end
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.quads) { return; }
    y_put(i, y_t4(value(4u * i), value(4u * i + 1u), value(4u * i + 2u), value(4u * i + 3u)));
}
