// y = apply(a, b, c, d) with numpy's broadcasting, for a chain of elementwise operators. The rule supplies
// `apply`. Only the first INPUTS operands are read.
@group(0) @binding(0) var<storage, read> a: array<a_word>;        // broadcast to [sizes..]
@group(0) @binding(1) var<storage, read> b: array<b_word>;        // broadcast to [sizes..]
@group(0) @binding(2) var<storage, read> c: array<c_word>;        // broadcast to [sizes..]
@group(0) @binding(3) var<storage, read> d: array<d_word>;        // broadcast to [sizes..]
@group(0) @binding(4) var<storage, read_write> y: array<y_word>;  // [sizes..]
@group(0) @binding(5) var<uniform> p: Params;

struct Params {
    quads: u32,
    rank: u32,
    a_same: u32,  // 1: a has the shape of the output, so it is read in quads
    b_same: u32,
    c_same: u32,
    d_same: u32,
    sizes: array<vec4<u32>, 2>,
    a_strides: array<vec4<u32>, 2>,
    b_strides: array<vec4<u32>, 2>,
    c_strides: array<vec4<u32>, 2>,
    d_strides: array<vec4<u32>, 2>,
    scalars: array<vec4<u32>, 4>,  // the scalars of all steps, as the bits of floats or integers
}

//#include broadcast_four

fn a_fetch(i: u32) -> a_t4 {
    if (p.a_same == 1u) { return a_quad(i); }
    let at = operand_indices(i, p.a_strides);
    return a_t4(a_at(at.x), a_at(at.y), a_at(at.z), a_at(at.w));
}

fn b_fetch(i: u32) -> b_t4 {
    if (p.b_same == 1u) { return b_quad(i); }
    let at = operand_indices(i, p.b_strides);
    return b_t4(b_at(at.x), b_at(at.y), b_at(at.z), b_at(at.w));
}

fn c_fetch(i: u32) -> c_t4 {
    if (p.c_same == 1u) { return c_quad(i); }
    let at = operand_indices(i, p.c_strides);
    return c_t4(c_at(at.x), c_at(at.y), c_at(at.z), c_at(at.w));
}

fn d_fetch(i: u32) -> d_t4 {
    if (p.d_same == 1u) { return d_quad(i); }
    let at = operand_indices(i, p.d_strides);
    return d_t4(d_at(at.x), d_at(at.y), d_at(at.z), d_at(at.w));
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.quads) { return; }
    let in_a = a_fetch(i);
    var in_b = b_t4();
    var in_c = c_t4();
    var in_d = d_t4();
    if (INPUTS > 1u) { in_b = b_fetch(i); }
    if (INPUTS > 2u) { in_c = c_fetch(i); }
    if (INPUTS > 3u) { in_d = d_fetch(i); }
    y_put(i, apply(in_a, in_b, in_c, in_d));
}
