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
//#include operand_fetch a
//#include operand_fetch b
//#include operand_fetch c
//#include operand_fetch d

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
