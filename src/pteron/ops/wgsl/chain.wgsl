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

//#include broadcast

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.quads) { return; }
    var in_a = a_quad(i * p.a_same);
    var in_b = b_t4();
    var in_c = c_t4();
    var in_d = d_t4();
    if (INPUTS > 1u) { in_b = b_quad(i * p.b_same); }
    if (INPUTS > 2u) { in_c = c_quad(i * p.c_same); }
    if (INPUTS > 3u) { in_d = d_quad(i * p.d_same); }
    if (p.a_same * p.b_same * p.c_same * p.d_same == 0u) {
        for (var n = 0u; n < 4u; n++) {
            in_a[n] = a_at(operand_index(4u * i + n, p.a_strides));
            if (INPUTS > 1u) { in_b[n] = b_at(operand_index(4u * i + n, p.b_strides)); }
            if (INPUTS > 2u) { in_c[n] = c_at(operand_index(4u * i + n, p.c_strides)); }
            if (INPUTS > 3u) { in_d[n] = d_at(operand_index(4u * i + n, p.d_strides)); }
        }
    }
    y_put(i, apply(in_a, in_b, in_c, in_d));
}
