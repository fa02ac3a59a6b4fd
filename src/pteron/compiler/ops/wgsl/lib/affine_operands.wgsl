// The operands of a linear layer with coded weights, y = x @ W^T + bias, except x and the codes of W.
//#include affine_scales
//#if HAS_BIAS
@group(0) @binding(4) var<storage, read> bias: array<f32>;     // [columns]
//#end
@group(0) @binding(5) var<storage, read_write> y: array<f32>;  // [rows, columns]
@group(0) @binding(6) var<uniform> p: Params;
//#if OUTPUTS > 1
@group(0) @binding(7) var<storage, read_write> y2: array<f32>;  // [rows, columns2]
//#end
//#if OUTPUTS > 2
@group(0) @binding(8) var<storage, read_write> y3: array<f32>;  // [rows, columns3]
//#end

//#include affine_params
