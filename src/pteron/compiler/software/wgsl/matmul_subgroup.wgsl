// Matrix products with any number of columns: see lib/subgroup_product.
//#trusted
@group(0) @binding(0) var<storage, read> a: array<a_word>;         // [batch, rows, depth]
@group(0) @binding(1) var<storage, read> b: array<b_word>;         // [batch, depth, columns], or TRANSPOSED
@group(0) @binding(2) var<storage, read> c: array<c_word>;         // broadcast to [batch, rows, columns]
@group(0) @binding(3) var<storage, read_write> y: array<ELEMENT>;    // [batch, rows, columns]
@group(0) @binding(4) var<uniform> p: Params;

//#include product
//#include finish_four

fn bias_of(column: u32) -> vec4<f32> { return vec4<f32>(); }

fn finish_row(matrix: u32, row: u32, column: u32, sum: vec4<f32>, bias: vec4<f32>) {
    finish_four(matrix, row, column, sum);
}

//#include subgroup_product
