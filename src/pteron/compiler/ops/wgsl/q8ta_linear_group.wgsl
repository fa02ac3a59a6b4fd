// y = ((x - zero point) @ W^T) * scale + bias, in 8-bit integers, by workgroups. The depth is a multiple of
// 4, and four bytes are multiplied at a time. y is float, or int8 if REQUANTIZE.
@group(0) @binding(0) var<storage, read> x: array<u32>;               // [rows, depth / 4]
@group(0) @binding(1) var<storage, read> weights: array<u32>;         // [>= columns, depth / 4]
//#include q8ta_linear
//#include put_four

//#include packed_quads

fn extent() -> Extent { return Extent(u32(p.rows > 0u), p.rows, p.columns, p.depth / 4u); }

fn row_quad(matrix: u32, row: u32, k: u32) -> u32 { return x[row * (p.depth / 4u) + k]; }

fn column_quad(matrix: u32, column: u32, k: u32) -> u32 { return weights[column * (p.depth / 4u) + k]; }

fn times(a: u32, b: u32) -> i32 { return dot4I8Packed(a, b) - p.in_zero * dot4I8Packed(b, 0x01010101u); }

// Scales and biases are padded to whole quads.
fn finish_four(matrix: u32, row: u32, column: u32, sum: vec4<i32>) {
    var v = vec4<f32>(sum) * (p.in_scale * vec4<f32>(scales_quad(column / 4u)));
    if (HAS_BIAS) { v += vec4<f32>(bias_quad(column / 4u)); }
    if (RELU) { v = max(v, vec4<f32>(0.0)); }
    if (REQUANTIZE) { v = requantize(v); }
    put_four(row * p.columns + column, p.columns - column, v);
}

//#if IN_TEAMS
//#include dot_teams
//#else
//#include tile_core
//#end
