// Store four neighbouring values from element `first` of y on. As one quad, or if RAGGED one by one,
// without those past the end.
fn put_four(first: u32, there: u32, v: vec4<f32>) {
//#if RAGGED
    for (var n = 0u; n < min(4u, there); n++) { y_set(first + n, y_t(v[n])); }
//#else
    y_put(first / 4u, y_t4(v));
//#end
}
