// Quad d of the row of y that starts at element `first`. Rows of whole quads own their words.
fn store(first: u32, d: u32, value: vec4<f32>) {
    if (WHOLE) { y_put(first / 4u + d, y_t4(value)); return; }
    let left = min(4u, WIDTH - 4u * d);
    for (var c = 0u; c < left; c++) { y_set(first + 4u * d + c, y_t(value[c])); }
}
