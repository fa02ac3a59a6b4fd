// Quantise four values to int8 with the output's scale and zero point. torch multiplies by 1 / scale and
// rounds ties to even.
fn requantize(v: vec4<f32>) -> vec4<f32> {
    return clamp(round(v * p.out_inverse) + p.out_zero, vec4<f32>(-128.0), vec4<f32>(127.0));
}
