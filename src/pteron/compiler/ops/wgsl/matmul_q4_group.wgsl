// y = x @ W with 4-bit W by workgroups, for any packing. Unlike in a linear layer, a column of W is not
// contiguous.
@group(0) @binding(0) var<storage, read> x: array<x_word>;              // [rows, depth]
@group(0) @binding(1) var<storage, read> weights: array<weights_word>;  // [depth, packed] bytes
@group(0) @binding(2) var<storage, read> scales: array<scales_word>;    // [ceil(columns / group), scale_row]
@group(0) @binding(3) var<storage, read_write> y: array<y_word>;        // [rows, columns]
@group(0) @binding(4) var<uniform> p: Params;

struct Params { rows: u32, columns: u32, depth: u32, packed: u32, group: u32, scale_row: u32 }

//#include float_quads
//#include put_four

fn extent() -> Extent { return Extent(u32(p.rows > 0u), p.rows, p.columns, (p.depth + 3u) / 4u); }

// Past the end of the depth it returns zeros.
fn row_quad(matrix: u32, row: u32, k: u32) -> vec4<f32> {
    var v: vec4<f32>;
    for (var n = 0u; n < min(4u, p.depth - 4u * k); n++) { v[n] = f32(x_at(row * p.depth + 4u * k + n)); }
    return v;
}

fn column_quad(matrix: u32, column: u32, k: u32) -> vec4<f32> {
    let first_scale = column / p.group * p.scale_row;
    var v: vec4<f32>;
    for (var n = 0u; n < min(4u, p.depth - 4u * k); n++) {
        let byte = u32(weights_at((4u * k + n) * p.packed + column / 2u));
        let nibble = extractBits(byte, 4u * (column % 2u), 4u);
        v[n] = (f32(nibble) - 8.0) * f32(scales_at(first_scale + 4u * k + n));
    }
    return v;
}

fn finish_four(matrix: u32, row: u32, column: u32, sum: vec4<f32>) {
    put_four(row * p.columns + column, p.columns - column, sum);
}

//#include tile_core
