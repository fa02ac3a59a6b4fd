// Store one element of a product in its output. An element past the end is not stored.
//#include outputs

fn store(row: u32, column: u32, value: f32) {
    if (row >= p.rows || column >= p.columns) { return; }
    let at = place(row, column);
//#if OUTPUTS > 1
    if (at.output == 2u) { y2[at.index] = value; return; }
//#end
//#if OUTPUTS > 2
    if (at.output == 3u) { y3[at.index] = value; return; }
//#end
    y[at.index] = value;
}
