// Store elements 4i .. 4i+3 of a product in their output. If there are several outputs, the columns of each
// are a multiple of 4.
//#include outputs

fn put(i: u32, four: y_t4) {
    let at = place(4u * i / p.columns, 4u * i % p.columns);
//#if OUTPUTS > 1
    if (at.output == 2u) { y2_put(at.index / 4u, y2_t4(four)); return; }
//#end
//#if OUTPUTS > 2
    if (at.output == 3u) { y3_put(at.index / 4u, y3_t4(four)); return; }
//#end
    y_put(at.index / 4u, four);
}
