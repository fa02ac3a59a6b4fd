// Matrix products of any shape and dtype. One invocation computes four neighbouring elements of y.
@group(0) @binding(0) var<storage, read> a: array<a_word>;        // [batch, rows, depth]
@group(0) @binding(1) var<storage, read> b: array<b_word>;        // [batch, depth, columns], or TRANSPOSED
@group(0) @binding(2) var<storage, read> c: array<c_word>;        // broadcast to [batch, rows, columns]
@group(0) @binding(3) var<storage, read_write> y: array<y_word>;  // [batch, rows, columns]
@group(0) @binding(4) var<uniform> p: Params;
//#if OUTPUTS > 1
@group(0) @binding(5) var<storage, read_write> y2: array<y2_word>;  // the next columns of y
//#end
//#if OUTPUTS > 2
@group(0) @binding(6) var<storage, read_write> y3: array<y3_word>;  // those after y2
//#end

//#include product
//#include put

fn b_index(matrix: u32, k: u32, column: u32) -> u32 {
    if (TRANSPOSED) { return (matrix * p.columns + column) * p.depth + k; }
    return (matrix * p.depth + k) * p.columns + column;
}

fn value(i: u32) -> y_t {
    let row = min(i / p.columns, p.batch * p.rows - 1u);
    let column = i % p.columns;
    let matrix = row / p.rows;
    var sum = y_t(0);
    for (var k = 0u; k < p.depth; k++) {
        sum += y_t(a_at(row * p.depth + k)) * y_t(b_at(b_index(matrix, k, column)));
    }
    if (HAS_C) {
        sum *= y_t(p.alpha);
        let at = matrix * p.c_batch + row % p.rows * p.c_row + column * p.c_column;
        if (p.beta != 0.0) { sum += y_t(p.beta) * y_t(c_at(at)); }
    }
    return sum;
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (4u * i >= p.batch * p.rows * p.columns) { return; }
    put(i, y_t4(value(4u * i), value(4u * i + 1u), value(4u * i + 2u), value(4u * i + 3u)));
}
