// y = apply(x, scale, zero point) for every element: quantise or dequantise. The rule supplies `apply`. The
// strides of scales and zero points repeat them over a block.
@group(0) @binding(0) var<storage, read> x: array<x_word>;            // [n]
@group(0) @binding(1) var<storage, read> scales: array<scales_word>;  // [1], or at strides
@group(0) @binding(2) var<storage, read> zeros: array<zeros_word>;    // [1], or at strides
@group(0) @binding(3) var<storage, read_write> y: array<y_word>;      // [n]
@group(0) @binding(4) var<uniform> p: Params;

struct Params {
    quads: u32,
    low: f32,
    high: f32,
    rank: u32,
    sizes: array<vec4<u32>, 2>,
    strides: array<vec4<u32>, 2>,
}

//#include broadcast

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.quads) { return; }
    var scale = vec4<f32>(0.0);
    var zero = vec4<f32>(0.0);
    for (var c = 0u; c < 4u; c++) {
        let at = operand_index(4u * i + c, p.strides);
        scale[c] = f32(scales_at(at));
        if (HAS_ZEROS) { zero[c] = f32(zeros_at(at)); }
    }
    y_put(i, y_t4(apply(vec4<f32>(x_quad(i)), scale, zero)));
}
