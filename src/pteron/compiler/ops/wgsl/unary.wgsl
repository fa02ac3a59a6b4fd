// y = apply(x), element by element. The rule supplies `apply`.
@group(0) @binding(0) var<storage, read> x: array<x_word>;        // [n]
@group(0) @binding(1) var<storage, read_write> y: array<y_word>;  // [n]
@group(0) @binding(2) var<uniform> p: Params;

// s0, s1 and s2 are the scalars of the operator as floats. k0, k1 and k2 are the same as integers, for
// integer tensors.
struct Params { quads: u32, s0: f32, s1: f32, s2: f32, k0: i32, k1: i32, k2: i32 }

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.quads) { return; }
    y_put(i, apply(x_quad(i)));
}
