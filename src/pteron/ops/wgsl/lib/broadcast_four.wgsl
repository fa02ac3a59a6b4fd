//#include broadcast

// How the elements 4i .. 4i+3 of an operand, which is broadcast to the output, are read.
const SAME = 1u;  // as a quad: the operand has the shape of the output
const ONE = 2u;  // as one element: the operand has no other
const ALIKE = 3u;  // as one element, which all four are
const RUN = 4u;  // as a quad: rows of the operand are rows of the output

// The indices in an operand of elements 4i .. 4i+3 of the output. The first is known. Divisions are expensive, so
// if the four elements are in one row of the output, no other is searched.
fn operand_indices(first: u32, i: u32, strides: array<vec4<u32>, 2>) -> vec4<u32> {
    let last = max(p.rank, 1u) - 1u;
    let size = p.sizes[last >> 2u][last & 3u];
    var indices = first + vec4<u32>(0u, 1u, 2u, 3u) * strides[last >> 2u][last & 3u];
    if (size % 4u != 0u && 4u * i % size + 3u >= size) {
        for (var n = 1u; n < 4u; n++) { indices[n] = operand_index(4u * i + n, strides); }
    }
    return indices;
}
