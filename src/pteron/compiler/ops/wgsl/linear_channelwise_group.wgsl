// y = (x @ W^T) * scale per column, with W in 8 or 4 bits, by workgroups. The depth is a multiple of 4. The
// rule supplies `columns_quad(column, k)`: elements 4k .. 4k+3 of a column.
@group(0) @binding(0) var<storage, read> x: array<x_word>;              // [rows, depth]
@group(0) @binding(1) var<storage, read> weight: array<weight_word>;    // [columns, packed] bytes
@group(0) @binding(2) var<storage, read> scales: array<scales_word>;    // [columns]
@group(0) @binding(3) var<storage, read_write> y: array<y_word>;        // [rows, columns]
@group(0) @binding(4) var<uniform> p: Params;

struct Params { rows: u32, columns: u32, depth: u32, packed: u32 }

//#include float_quads
//#include put_four

fn extent() -> Extent { return Extent(u32(p.rows > 0u), p.rows, p.columns, p.depth / 4u); }

fn row_quad(matrix: u32, row: u32, k: u32) -> vec4<f32> { return vec4<f32>(x_quad(row * (p.depth / 4u) + k)); }

fn column_quad(matrix: u32, column: u32, k: u32) -> vec4<f32> { return columns_quad(column, k); }

fn finish_four(matrix: u32, row: u32, column: u32, sum: vec4<f32>) {
    let scale = vec4<f32>(scales_quad(column / 4u));  // padding past the last column
    put_four(row * p.columns + column, p.columns - column, sum * scale);
}

//#if IN_TEAMS
//#include dot_teams
//#else
//#include tile_core
//#end
