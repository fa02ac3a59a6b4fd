// y = ((x - zero point) @ W^T) * scale + bias, in 8-bit integers, for any shape. One invocation computes four
// neighbouring elements. y is float, or int8 if REQUANTIZE.
@group(0) @binding(0) var<storage, read> x: array<x_word>;              // [rows, depth]
@group(0) @binding(1) var<storage, read> weights: array<weights_word>;  // [>= columns, depth]
//#include q8ta_linear

fn value(i: u32) -> f32 {
    let row = min(i / p.columns, p.rows - 1u);
    let column = i % p.columns;
    var sum = 0;
    for (var k = 0u; k < p.depth; k++) {
        sum += (x_at(row * p.depth + k) - p.in_zero) * weights_at(column * p.depth + k);
    }
    var v = f32(sum) * (p.in_scale * f32(scales_at(column)));
    if (HAS_BIAS) { v += f32(bias_at(column)); }
    return v;
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (4u * i >= p.rows * p.columns) { return; }
    var v = vec4<f32>(value(4u * i), value(4u * i + 1u), value(4u * i + 2u), value(4u * i + 3u));
    if (RELU) { v = max(v, vec4<f32>(0.0)); }
    if (REQUANTIZE) { v = requantize(v); }
    y_put(i, y_t4(v));
}
