// The operands of a linear layer in 8-bit integers, y = ((x - zero point) @ W^T) * scale + bias, except x and
// the weights.
@group(0) @binding(2) var<storage, read> scales: array<scales_word>;  // [>= columns]
@group(0) @binding(3) var<storage, read> bias: array<bias_word>;      // [>= columns]
@group(0) @binding(4) var<storage, read_write> y: array<y_word>;      // [rows, columns]
@group(0) @binding(5) var<uniform> p: Params;

struct Params {
    rows: u32,
    columns: u32,
    depth: u32,
    in_zero: i32,
    in_scale: f32,
    out_inverse: f32,
    out_zero: f32,
}

//#include requantize
