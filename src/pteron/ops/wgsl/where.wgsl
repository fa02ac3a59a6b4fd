// y = c ? a : b with numpy's broadcasting.
@group(0) @binding(0) var<storage, read> c: array<c_word>;
@group(0) @binding(1) var<storage, read> a: array<a_word>;
@group(0) @binding(2) var<storage, read> b: array<b_word>;
@group(0) @binding(3) var<storage, read_write> y: array<y_word>;  // [sizes..]
@group(0) @binding(4) var<uniform> p: Params;

struct Params {
    quads: u32,
    rank: u32,
    sizes: array<vec4<u32>, 2>,
    c_strides: array<vec4<u32>, 2>,
    a_strides: array<vec4<u32>, 2>,
    b_strides: array<vec4<u32>, 2>,
}

//#include broadcast

fn pick(i: u32) -> y_t {
    if (c_at(operand_index(i, p.c_strides)) != c_t(0)) { return y_t(a_at(operand_index(i, p.a_strides))); }
    return y_t(b_at(operand_index(i, p.b_strides)));
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.quads) { return; }
    y_put(i, y_t4(pick(4u * i), pick(4u * i + 1u), pick(4u * i + 2u), pick(4u * i + 3u)));
}
