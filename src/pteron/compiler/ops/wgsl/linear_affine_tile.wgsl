// y = x @ W^T + bias with coded W, for many rows, in tiles. W is decoded once for all rows of a tile. A group
// is a number of whole quads.
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;  // [rows, depth / 4]
@group(0) @binding(1) var<storage, read> weights: array<u32>;  // [columns, row_bytes / 4]
//#include affine_operands
//#include affine_quads
//#if HALVED
//#include half_quads
//#else
//#include float_quads
//#end
//#include finish_fused

fn extent() -> Extent { return Extent(u32(p.rows > 0u), p.rows, p.columns, p.depth / 4u); }

fn row_quad(matrix: u32, row: u32, k: u32) -> quad_t { return quad_t(x[row * (p.depth / 4u) + k]); }

fn column_quad(matrix: u32, column: u32, k: u32) -> quad_t {
    let c = column_of(column);
    let line = line_of(c, 4u * k / GROUP);
    return quad_t(fma(codes_quad(c, k), vec4<f32>(line.scale), vec4<f32>(line.start)));
}

fn finish_four(matrix: u32, row: u32, column: u32, sum: vec4<f32>) { finish_fused(row, column, 4u, sum); }

//#include tile_core
