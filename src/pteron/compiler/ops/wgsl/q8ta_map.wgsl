// y = requantised x, read with strides: relu and pixel shuffle.
@group(0) @binding(0) var<storage, read> x: array<x_word>;        // at strides
@group(0) @binding(1) var<storage, read_write> y: array<y_word>;  // [sizes..]
@group(0) @binding(2) var<uniform> p: Params;

struct Params {
    quads: u32,
    rank: u32,
    in_scale: f32,
    in_zero: f32,
    out_inverse: f32,
    out_zero: f32,
    sizes: array<vec4<u32>, 2>,
    strides: array<vec4<u32>, 2>,
}

//#include broadcast
//#include requantize

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.quads) { return; }
    var v = vec4<f32>(0.0);
    for (var c = 0u; c < 4u; c++) { v[c] = f32(x_at(operand_index(4u * i + c, p.strides))); }
    v = (v - p.in_zero) * p.in_scale;
    if (RELU) { v = max(v, vec4<f32>(0.0)); }
    y_put(i, y_t4(requantize(v)));
}
