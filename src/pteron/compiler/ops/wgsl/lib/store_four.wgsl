// Store four neighbouring columns of a row in their output, without those past the end. If there are several
// outputs, the columns of each are a multiple of 4. Loops keep the code of software adapters short.
//#include outputs

fn store_four(row: u32, column: u32, value: vec4<f32>) {
    if (column >= p.columns) { return; }
    let at = place(row, column);
    let end = at.index + min(4u, p.columns - column);
//#if OUTPUTS > 1
    if (at.output == 2u) {
        for (var i = at.index; i < end; i++) { y2[i] = ELEMENT(value[i - at.index]); }
        return;
    }
//#end
//#if OUTPUTS > 2
    if (at.output == 3u) {
        for (var i = at.index; i < end; i++) { y3[i] = ELEMENT(value[i - at.index]); }
        return;
    }
//#end
    for (var i = at.index; i < end; i++) { y[i] = ELEMENT(value[i - at.index]); }
}
