// Four neighbouring columns of a row of y, as far as there are columns.
fn store_four(row: u32, column: u32, value: vec4<f32>) {
    let at = row * p.columns + column;
    if (column < p.columns) { y[at] = ELEMENT(value.x); }
    if (column + 1u < p.columns) { y[at + 1u] = ELEMENT(value.y); }
    if (column + 2u < p.columns) { y[at + 2u] = ELEMENT(value.z); }
    if (column + 3u < p.columns) { y[at + 3u] = ELEMENT(value.w); }
}
