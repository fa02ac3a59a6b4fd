// y = apply(a, b) with numpy's broadcasting. The rule supplies `apply`.
@group(0) @binding(0) var<storage, read> a: array<a_word>;        // broadcast to [sizes..]
@group(0) @binding(1) var<storage, read> b: array<b_word>;        // broadcast to [sizes..]
@group(0) @binding(2) var<storage, read_write> y: array<y_word>;  // [sizes..]
@group(0) @binding(3) var<uniform> p: Params;

struct Params {
    quads: u32,
    rank: u32,         // after dimensions with the same broadcasting are merged
    a_read: u32,       // see lib/broadcast_four
    b_read: u32,
    s0: f32,
    k0: i32,
    sizes: array<vec4<u32>, 2>,
    a_strides: array<vec4<u32>, 2>,
    b_strides: array<vec4<u32>, 2>,
}

//#include broadcast_four
//#include operand_fetch a
//#include operand_fetch b

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.quads) { return; }
    y_put(i, apply(a_fetch(i), b_fetch(i)));
}
