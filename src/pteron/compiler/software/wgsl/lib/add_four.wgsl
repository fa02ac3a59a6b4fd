// Add the products of four steps in depth to a sum.
fn add_four(x: vec4<f32>, w: mat4x4<f32>, sum: vec4<f32>) -> vec4<f32> {
    return fma(x.wwww, w[3], fma(x.zzzz, w[2], fma(x.yyyy, w[1], fma(x.xxxx, w[0], sum))));
}
