// y = apply(a, b, c) with numpy's broadcasting. The rule supplies `apply`.
@group(0) @binding(0) var<storage, read> a: array<a_word>;        // broadcast to [sizes..]
@group(0) @binding(1) var<storage, read> b: array<b_word>;        // broadcast to [sizes..]
@group(0) @binding(2) var<storage, read> c: array<c_word>;        // broadcast to [sizes..]
@group(0) @binding(3) var<storage, read_write> y: array<y_word>;  // [sizes..]
@group(0) @binding(4) var<uniform> p: Params;

struct Params {
    quads: u32,
    rank: u32,
    s0: f32,
    k0: i32,
    sizes: array<vec4<u32>, 2>,
    a_strides: array<vec4<u32>, 2>,
    b_strides: array<vec4<u32>, 2>,
    c_strides: array<vec4<u32>, 2>,
}

//#include broadcast

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.quads) { return; }
    var first: a_t4;
    var second: b_t4;
    var third: c_t4;
    for (var n = 0u; n < 4u; n++) {
        first[n] = a_at(operand_index(4u * i + n, p.a_strides));
        second[n] = b_at(operand_index(4u * i + n, p.b_strides));
        third[n] = c_at(operand_index(4u * i + n, p.c_strides));
    }
    y_put(i, apply(first, second, third));
}
