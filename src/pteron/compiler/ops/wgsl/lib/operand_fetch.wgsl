// Needs broadcast_four. An array that is passed to a function, and every load, makes the code of software adapters
// long. So strides are read where they are used, and there are few loads.

// The index in an operand, which is broadcast to the output, of element `i` of the output.
fn NAME_index(i: u32) -> u32 {
    var rest = i;
    var index = 0u;
    for (var d = p.rank; d > 0u; d--) {
        let above = rest / size_of(d - 1u);
        index += (rest - above * size_of(d - 1u)) * p.NAME_strides[(d - 1u) >> 2u][(d - 1u) & 3u];
        rest = above;
    }
    return index;
}

// The elements 4i .. 4i+3 of an operand, which is broadcast to the output.
fn NAME_fetch(i: u32) -> NAME_t4 {
    if (p.NAME_read == SAME) { return NAME_quad(i); }
    if (p.NAME_read == ONE) { return NAME_t4(NAME_at(0u)); }
    let last = max(p.rank, 1u) - 1u;
    var four = NAME_t4();
    var at = 0u;
    var follow = 0u;  // elements that follow in the same row of the output: no index is computed for them
    let end = select(1u, 4u, p.NAME_read == ELEMENTS);
    for (var n = 0u; n < end; n++) {
        if (follow > 0u) {
            at += p.NAME_strides[last >> 2u][last & 3u];
            follow -= 1u;
        } else {
            at = NAME_index(4u * i + n);
            follow = size_of(last) - 1u - (4u * i + n) % size_of(last);
        }
        let quad = NAME_quad(at / 4u);
        if (p.NAME_read == RUN) { return quad; }
        four = select(four, NAME_t4(quad[at % 4u]), vec4<u32>(0u, 1u, 2u, 3u) >= vec4<u32>(n));
    }
    return four;
}
