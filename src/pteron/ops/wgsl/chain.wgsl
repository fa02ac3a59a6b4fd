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
    a_read: u32,  // see lib/broadcast_four
    b_read: u32,
    c_read: u32,
    d_read: u32,
    sizes: array<vec4<u32>, 2>,
    a_strides: array<vec4<u32>, 2>,
    b_strides: array<vec4<u32>, 2>,
    c_strides: array<vec4<u32>, 2>,
    d_strides: array<vec4<u32>, 2>,
    scalars: array<vec4<u32>, 4>,  // the scalars of all steps, as the bits of floats or integers
}

//#include broadcast_four

fn a_fetch(i: u32) -> a_t4 {
    if (p.a_read == SAME) { return a_quad(i); }
    if (p.a_read == ONE) { return a_t4(a_at(0u)); }
    let first = operand_index(4u * i, p.a_strides);
    if (p.a_read == ALIKE) { return a_t4(a_at(first)); }
    if (p.a_read == RUN) { return a_quad(first / 4u); }
    let at = operand_indices(first, i, p.a_strides);
    return a_t4(a_at(at.x), a_at(at.y), a_at(at.z), a_at(at.w));
}

fn b_fetch(i: u32) -> b_t4 {
    if (p.b_read == SAME) { return b_quad(i); }
    if (p.b_read == ONE) { return b_t4(b_at(0u)); }
    let first = operand_index(4u * i, p.b_strides);
    if (p.b_read == ALIKE) { return b_t4(b_at(first)); }
    if (p.b_read == RUN) { return b_quad(first / 4u); }
    let at = operand_indices(first, i, p.b_strides);
    return b_t4(b_at(at.x), b_at(at.y), b_at(at.z), b_at(at.w));
}

fn c_fetch(i: u32) -> c_t4 {
    if (p.c_read == SAME) { return c_quad(i); }
    if (p.c_read == ONE) { return c_t4(c_at(0u)); }
    let first = operand_index(4u * i, p.c_strides);
    if (p.c_read == ALIKE) { return c_t4(c_at(first)); }
    if (p.c_read == RUN) { return c_quad(first / 4u); }
    let at = operand_indices(first, i, p.c_strides);
    return c_t4(c_at(at.x), c_at(at.y), c_at(at.z), c_at(at.w));
}

fn d_fetch(i: u32) -> d_t4 {
    if (p.d_read == SAME) { return d_quad(i); }
    if (p.d_read == ONE) { return d_t4(d_at(0u)); }
    let first = operand_index(4u * i, p.d_strides);
    if (p.d_read == ALIKE) { return d_t4(d_at(first)); }
    if (p.d_read == RUN) { return d_quad(first / 4u); }
    let at = operand_indices(first, i, p.d_strides);
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
