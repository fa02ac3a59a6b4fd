//#include broadcast

// The indices in an operand, which is broadcast to the output, of elements 4i .. 4i+3 of the output. Divisions
// are expensive, so if the four elements are in one row of the output, only the first is searched.
fn operand_indices(i: u32, strides: array<vec4<u32>, 2>) -> vec4<u32> {
    let last = max(p.rank, 1u) - 1u;
    let size = p.sizes[last >> 2u][last & 3u];
    var indices = operand_index(4u * i, strides) + vec4<u32>(0u, 1u, 2u, 3u) * strides[last >> 2u][last & 3u];
    if (size % 4u != 0u && 4u * i % size + 3u >= size) {
        for (var n = 1u; n < 4u; n++) { indices[n] = operand_index(4u * i + n, strides); }
    }
    return indices;
}
