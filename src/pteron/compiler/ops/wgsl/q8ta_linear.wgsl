// y = ((x - zero point) @ W^T) * scale + bias, in 8-bit integers. Depth and columns are multiples of 4. One
// invocation computes ROWS rows of four columns. y is float, or int8 if REQUANTIZE.
@group(0) @binding(0) var<storage, read> x: array<x_word>;              // [rows, depth]
@group(0) @binding(1) var<storage, read> weights: array<weights_word>;  // [>= columns, depth]
//#include q8ta_linear

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    let across = p.columns / 4u;
    let row = (i / across) * ROWS;
    let quad = i % across;
    if (row >= p.rows) { return; }
    let k4 = p.depth / 4u;
    var sums: array<vec4<i32>, ROWS>;
    for (var k = 0u; k < k4; k++) {
        let w0 = weights_quad((4u * quad) * k4 + k);
        let w1 = weights_quad((4u * quad + 1u) * k4 + k);
        let w2 = weights_quad((4u * quad + 2u) * k4 + k);
        let w3 = weights_quad((4u * quad + 3u) * k4 + k);
        for (var r = 0u; r < ROWS; r++) {
            let v = x_quad(min(row + r, p.rows - 1u) * k4 + k) - vec4<i32>(p.in_zero);
            sums[r] += vec4<i32>(dot(v, w0), dot(v, w1), dot(v, w2), dot(v, w3));
        }
    }
    let scale = p.in_scale * vec4<f32>(scales_quad(quad));
    for (var r = 0u; r < min(ROWS, p.rows - row); r++) {
        var v = vec4<f32>(sums[r]) * scale;
        if (HAS_BIAS) { v += vec4<f32>(bias_quad(quad)); }
        if (RELU) { v = max(v, vec4<f32>(0.0)); }
        if (REQUANTIZE) { v = requantize(v); }
        y_put((row + r) * across + quad, y_t4(v));
    }
}
