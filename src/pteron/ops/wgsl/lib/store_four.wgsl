// Store four neighbouring columns of a row in their output, without those past the end. If there are several
// outputs, the columns of each are a multiple of 4.
//#include outputs

fn store_four(row: u32, column: u32, value: vec4<f32>) {
    if (column >= p.columns) { return; }
    let at = place(row, column);
//#if SECOND
    if (at.output == 2u) {
        y2[at.index] = ELEMENT(value.x);
        y2[at.index + 1u] = ELEMENT(value.y);
        y2[at.index + 2u] = ELEMENT(value.z);
        y2[at.index + 3u] = ELEMENT(value.w);
        return;
    }
//#end
//#if THIRD
    if (at.output == 3u) {
        y3[at.index] = ELEMENT(value.x);
        y3[at.index + 1u] = ELEMENT(value.y);
        y3[at.index + 2u] = ELEMENT(value.z);
        y3[at.index + 3u] = ELEMENT(value.w);
        return;
    }
//#end
    y[at.index] = ELEMENT(value.x);
    if (column + 1u < p.columns) { y[at.index + 1u] = ELEMENT(value.y); }
    if (column + 2u < p.columns) { y[at.index + 2u] = ELEMENT(value.z); }
    if (column + 3u < p.columns) { y[at.index + 3u] = ELEMENT(value.w); }
}
