// Matrix products of many rows, in tiles. Sums are float32.
@group(0) @binding(0) var<storage, read> a: array<a_word>;         // [batch, rows, depth]
@group(0) @binding(1) var<storage, read> b: array<b_word>;         // [batch, depth, columns], or TRANSPOSED
@group(0) @binding(2) var<storage, read> c: array<c_word>;         // broadcast to [batch, rows, columns]
@group(0) @binding(3) var<storage, read_write> y: array<ELEMENT>;  // [batch, rows, columns]
@group(0) @binding(4) var<uniform> p: Params;

//#include product_params
//#include operands
//#include finish_four
//#if HALVED
//#include half_quads
//#else
//#include float_quads
//#end

fn extent() -> Extent { return Extent(p.batch, p.rows, p.columns, (p.depth + 3u) / 4u); }

fn row_quad(matrix: u32, row: u32, k: u32) -> quad_t {
    if (!RAGGED) { return quad_t(a_quad((matrix * p.rows + row) * (p.depth / 4u) + k)); }
    return quad_t(a_four(matrix, row, 4u * k));
}

fn column_quad(matrix: u32, column: u32, k: u32) -> quad_t {
    if (TRANSPOSED && !RAGGED) { return quad_t(b_quad((matrix * p.columns + column) * (p.depth / 4u) + k)); }
    if (TRANSPOSED) { return quad_t(inside(b_four((matrix * p.columns + column) * p.depth + 4u * k, p.depth), 4u * k)); }
    let at = (matrix * p.depth + 4u * k) * p.columns + column;
    let steps = p.columns * vec3<u32>(1u, 2u, 3u);
    return quad_t(inside(vec4<f32>(b_at(at), b_at(at + steps.x), b_at(at + steps.y), b_at(at + steps.z)), 4u * k));
}

//#include tile_core
