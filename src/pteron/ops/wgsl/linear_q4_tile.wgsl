// y = x @ W^T + bias with 4-bit W, for many rows: in tiles of ROWS rows and columns, W unpacked and scaled once for all
// rows of a tile. A group has whole words.
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;        // [rows, depth / 4]
@group(0) @binding(1) var<storage, read> weights: array<u32>;        // [columns, packed / 4]
//#include q4_operands
//#include q4
//#include float_quads
//#include finish_columns

const SIDE = ROWS;
const QUADS = 4u;
const ROWS_FIRST = false;
const COLUMNS_FIRST = false;

fn extent() -> Extent { return Extent(u32(p.rows > 0u), p.rows, p.columns, p.depth / 4u); }

fn row_quad(matrix: u32, row: u32, k: u32) -> vec4<f32> { return x[row * (p.depth / 4u) + k]; }

fn column_quad(matrix: u32, column: u32, k: u32) -> vec4<f32> {
    let word = weights[column * (p.packed / 4u) + k / 2u];
    let scale = scales[4u * k / p.group * p.scale_row + column];
    return select(low_quad(word), high_quad(word), k % 2u == 1u) * scale;
}

fn finish_four(matrix: u32, row: u32, column: u32, sum: vec4<f32>) { finish_columns(row, column, sum); }

//#include dot_tiles
