// y = apply(a, b, c) with numpy's broadcasting. The rule supplies `apply`.
@group(0) @binding(0) var<storage, read> a: array<a_word>;        // broadcast to [sizes..]
@group(0) @binding(1) var<storage, read> b: array<b_word>;        // broadcast to [sizes..]
@group(0) @binding(2) var<storage, read> c: array<c_word>;        // broadcast to [sizes..]
@group(0) @binding(3) var<storage, read_write> y: array<y_word>;  // [sizes..]
@group(0) @binding(4) var<uniform> p: Params;

struct Params {
    quads: u32,
    rank: u32,
    a_read: u32,  // see lib/broadcast_four
    b_read: u32,
    c_read: u32,
    s0: f32,
    k0: i32,
    sizes: array<vec4<u32>, 2>,
    a_strides: array<vec4<u32>, 2>,
    b_strides: array<vec4<u32>, 2>,
    c_strides: array<vec4<u32>, 2>,
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

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.quads) { return; }
    y_put(i, apply(a_fetch(i), b_fetch(i), c_fetch(i)));
}
