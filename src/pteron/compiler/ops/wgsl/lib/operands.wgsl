// Read parts of a and b, of any shape. Past the end of the depth the values are zeros. Rows and columns past
// the end have undefined values, which are not stored. Unless RAGGED, rows of both operands are whole quads.
fn inside(values: vec4<f32>, k: u32) -> vec4<f32> {
    return select(vec4<f32>(0.0), values, vec4<u32>(k) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(p.depth));
}

// Four steps in depth of a row of a.
fn a_four(matrix: u32, row: u32, k: u32) -> vec4<f32> {
    let at = (matrix * p.rows + row) * p.depth + k;
    if (!RAGGED || p.depth % 4u == 0u) { return inside(a_quad(at / 4u), k); }
    return inside(vec4<f32>(a_at(at), a_at(at + 1u), a_at(at + 2u), a_at(at + 3u)), k);
}

// Four steps in depth of four neighbouring rows of a.
fn a_block(matrix: u32, row: u32, k: u32) -> mat4x4<f32> {
    return transpose(mat4x4<f32>(
        a_four(matrix, row, k), a_four(matrix, row + 1u, k), a_four(matrix, row + 2u, k), a_four(matrix, row + 3u, k)
    ));
}

// Four neighbouring elements of b, in a row of `length`.
fn b_four(at: u32, length: u32) -> vec4<f32> {
    if (!RAGGED || length % 4u == 0u) { return b_quad(at / 4u); }
    return vec4<f32>(b_at(at), b_at(at + 1u), b_at(at + 2u), b_at(at + 3u));
}

// Four steps in depth of four neighbouring columns of b.
fn b_block(matrix: u32, k: u32, column: u32) -> mat4x4<f32> {
    if (TRANSPOSED) {
        let at = (matrix * p.columns + column) * p.depth + k;
        return transpose(mat4x4<f32>(
            inside(b_four(at, p.depth), k),
            inside(b_four(at + p.depth, p.depth), k),
            inside(b_four(at + 2u * p.depth, p.depth), k),
            inside(b_four(at + 3u * p.depth, p.depth), k),
        ));
    }
    let at = (matrix * p.depth + k) * p.columns + column;
    let zero = vec4<f32>(0.0);
    return mat4x4<f32>(
        select(zero, b_four(at, p.columns), k < p.depth),
        select(zero, b_four(at + p.columns, p.columns), k + 1u < p.depth),
        select(zero, b_four(at + 2u * p.columns, p.columns), k + 2u < p.depth),
        select(zero, b_four(at + 3u * p.columns, p.columns), k + 3u < p.depth),
    );
}
