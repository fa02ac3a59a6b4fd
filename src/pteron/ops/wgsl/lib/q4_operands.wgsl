// The operands of a 4-bit linear layer, y = x @ W^T + bias, except x and the packed weights.
@group(0) @binding(2) var<storage, read> scales: array<f32>;   // [depth / group, scale_row]
@group(0) @binding(3) var<storage, read> bias: array<f32>;     // [columns]
@group(0) @binding(4) var<storage, read_write> y: array<f32>;  // [rows, columns]
@group(0) @binding(5) var<uniform> p: Params;
//#if SECOND
@group(0) @binding(6) var<storage, read_write> y2: array<f32>;  // the next columns of y
//#end
//#if THIRD
@group(0) @binding(7) var<storage, read_write> y3: array<f32>;  // those after y2
//#end

//#include q4_params
