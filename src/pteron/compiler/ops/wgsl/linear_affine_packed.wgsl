// y = x @ W^T + bias with coded W, for many rows, in tiles of 8-bit integers. x has been rounded (see rounded_rows). A
// weight is scale * code + start. So a block of BLOCK steps in depth adds
// factor of x * scale * (sum of products of codes) + factor of x * (sum of codes of x) * start.
@group(0) @binding(0) var<storage, read> x: array<u32>;        // rounded rows
@group(0) @binding(1) var<storage, read> weights: array<u32>;  // [columns, row_bytes / 4]
//#include affine_operands
//#include affine_quads
//#include rounded_row
//#include packed_quads
//#include finish_fused

fn extent() -> Extent { return Extent(u32(p.rows > 0u), p.rows, p.columns, p.depth / 4u); }

fn row_quad(matrix: u32, row: u32, k: u32) -> u32 { return x[first_word(row) + k]; }

fn column_quad(matrix: u32, column: u32, k: u32) -> u32 {
//#if SIGNED
    return weights[column_of(column) * (p.row_bytes / 4u) + k];
//#elif BYTES
    return weights[column_of(column) * (p.row_bytes / 4u) + k] ^ 0x80808080u;  // the code - 128
//#else
    return pack4xU8(codes_at(column_of(column), k));
//#end
}

// The factor of a block that begins at quad k, and the factor times the sum.
fn row_line(matrix: u32, row: u32, k: u32) -> vec2<f32> {
    let at = first_word(row) + p.depth / 4u + 2u * (4u * k / BLOCK);
    return vec2<f32>(bitcast<f32>(x[at]), bitcast<f32>(x[at + 1u]));
}

fn column_line(matrix: u32, column: u32, k: u32) -> vec2<f32> {
    let line = line_of(column_of(column), 4u * k / GROUP);
//#if BYTES
    if (!SIGNED) { return vec2<f32>(line.scale, fma(128.0, line.scale, line.start)); }
//#end
    return vec2<f32>(line.scale, line.start);
}

fn times(a: u32, b: u32) -> i32 { return dot4I8Packed(a, b); }

fn finish_four(matrix: u32, row: u32, column: u32, sum: vec4<f32>) { finish_fused(row, column, 4u, sum); }

//#include tile_core
