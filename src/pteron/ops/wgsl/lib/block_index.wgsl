// The indices of the four quads of the 4 x 4 block of b at depth 0 and a column, and the distance to the next
// block in depth. The quads are columns if TRANSPOSED, and otherwise steps in depth.
fn block_index(matrix: u32, column: u32) -> vec4<u32> {
    let four = vec4<u32>(0u, 1u, 2u, 3u);
    if (TRANSPOSED) {
        let columns = min(vec4<u32>(column) + four, vec4<u32>(p.columns - 1u));
        return (vec4<u32>(matrix * p.columns) + columns) * (p.depth / 4u);
    }
    let across = p.columns / 4u;
    return (vec4<u32>(matrix * p.depth) + four) * across + vec4<u32>(min(column / 4u, across - 1u));
}

fn block_stride() -> vec4<u32> { return vec4<u32>(select(p.columns, 1u, TRANSPOSED)); }
