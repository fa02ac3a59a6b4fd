// Matrix products whose outputs have whole quads of columns: see lib/subgroup_product.
//#trusted
@group(0) @binding(0) var<storage, read> a: array<a_word>;         // [batch, rows, depth]
@group(0) @binding(1) var<storage, read> b: array<b_word>;         // [batch, depth, columns], or TRANSPOSED
@group(0) @binding(2) var<storage, read> c: array<c_word>;         // broadcast to [batch, rows, columns]
@group(0) @binding(3) var<storage, read_write> y: array<y_word>;     // [batch, rows, columns]
@group(0) @binding(4) var<uniform> p: Params;

//#include product
//#include finish_quads

//#include subgroup_product
