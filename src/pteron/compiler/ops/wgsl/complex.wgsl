// y = apply(a, b) of complex numbers, with numpy's broadcasting. The rule supplies `apply`, and the functions that
// read an element as a complex number.
@group(0) @binding(0) var<storage, read> a: array<a_word>;        // broadcast to [sizes..]
@group(0) @binding(1) var<storage, read> b: array<b_word>;        // broadcast to [sizes..]
@group(0) @binding(2) var<storage, read_write> y: array<y_word>;  // [sizes..]
@group(0) @binding(3) var<uniform> p: Params;

struct Params {
    quads: u32,
    rank: u32,
    alpha: f32,
    sizes: array<vec4<u32>, 2>,
    a_strides: array<vec4<u32>, 2>,
    b_strides: array<vec4<u32>, 2>,
}

//#include broadcast

fn element(i: u32) -> vec2<f32> {
    return apply(a_complex(operand_index(i, p.a_strides)), b_complex(operand_index(i, p.b_strides)));
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.quads) { return; }
    y_put(i, y_t4(element(4u * i), element(4u * i + 1u), element(4u * i + 2u), element(4u * i + 3u)));
}
