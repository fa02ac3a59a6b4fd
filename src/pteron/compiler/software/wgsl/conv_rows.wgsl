// Convolution of images that are unfolded to rows (see unfold_rows), as a matrix product: see
// lib/subgroup_product. Rows are positions of all images, and columns are output channels.
//#trusted
@group(0) @binding(0) var<storage, read> a: array<a_word>;        // [rows, depth]
@group(0) @binding(1) var<storage, read> b: array<b_word>;        // [depth, columns]
@group(0) @binding(2) var<storage, read> c: array<c_word>;        // [columns]
@group(0) @binding(3) var<storage, read_write> y: array<y_word>;  // [rows / positions, columns, positions]
@group(0) @binding(4) var<uniform> p: Params;

struct Params {
    batch: u32,  // matrices: 1
    first: u32,
    rows: u32,
    columns: u32,
    depth: u32,
    positions: u32,
    has_bias: u32,  // 0 or 1, and not a define: compiling this kernel takes long
    clamped: u32,
    low: f32,
    high: f32,
}

fn bias_of(column: u32) -> vec4<f32> {
    if (p.has_bias == 1u) { return vec4<f32>(c_quad(column / 4u)); }
    return vec4<f32>();
}

fn finish_row(matrix: u32, row: u32, column: u32, sum: vec4<f32>, bias: vec4<f32>) {
    var v = sum + bias;
    if (p.clamped == 1u) { v = clamp_nan4(v, vec4<f32>(p.low), vec4<f32>(p.high)); }
//#if EPILOGUE
    v = epilogue(v);
//#end
    let image = row / p.positions;
    let at = (image * p.columns + column) * p.positions + row - image * p.positions;
    for (var n = 0u; n < 4u; n++) { y_set(at + n * p.positions, v[n]); }
}

//#include product_blocks
//#include subgroup_product
