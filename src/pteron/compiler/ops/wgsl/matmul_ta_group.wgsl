// y = a^T @ b by workgroups, for any shape.
@group(0) @binding(0) var<storage, read> a: array<a_word>;        // [depth, rows]
@group(0) @binding(1) var<storage, read> b: array<b_word>;        // [depth, columns]
@group(0) @binding(2) var<storage, read_write> y: array<y_word>;  // [rows, columns]
@group(0) @binding(3) var<uniform> p: Params;

struct Params { rows: u32, columns: u32, depth: u32 }

//#include float_quads
//#include put_four

fn extent() -> Extent { return Extent(u32(p.rows > 0u), p.rows, p.columns, (p.depth + 3u) / 4u); }

// Past the end of the depth it returns zeros.
fn row_quad(matrix: u32, row: u32, k: u32) -> vec4<f32> {
    var v: vec4<f32>;
    for (var n = 0u; n < min(4u, p.depth - 4u * k); n++) { v[n] = f32(a_at((4u * k + n) * p.rows + row)); }
    return v;
}

fn column_quad(matrix: u32, column: u32, k: u32) -> vec4<f32> {
    var v: vec4<f32>;
    for (var n = 0u; n < min(4u, p.depth - 4u * k); n++) { v[n] = f32(b_at((4u * k + n) * p.columns + column)); }
    return v;
}

fn finish_four(matrix: u32, row: u32, column: u32, sum: vec4<f32>) {
    put_four(row * p.columns + column, p.columns - column, sum);
}

//#include tile_core
