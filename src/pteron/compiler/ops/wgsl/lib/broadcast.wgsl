// The index in an operand, which is broadcast to the output, of element `i` of the output.
fn operand_index(i: u32, strides: array<vec4<u32>, 2>) -> u32 {
    var rest = i;
    var index = 0u;
    for (var d = p.rank; d > 0u; d--) {
        let size = p.sizes[(d - 1u) >> 2u][(d - 1u) & 3u];
        let above = rest / size;
        index += (rest - above * size) * strides[(d - 1u) >> 2u][(d - 1u) & 3u];
        rest = above;
    }
    return index;
}
