// The parameters of all matrix products: y = alpha * (a @ b) + beta * c for each matrix of a batch. b is
// [depth, columns], or [columns, depth] if TRANSPOSED. The bias of a linear layer is a c with one row.
struct Params {
    batch: u32, rows: u32, columns: u32, second: u32, third: u32, depth: u32,
    alpha: f32, beta: f32, c_batch: u32, c_row: u32, c_column: u32,
}

// The first element of a workgroup's block of y. Neighbouring workgroups have the same columns, so they read
// the same part of b, which is usually the larger operand.
struct Corner { matrix: u32, row: u32, column: u32 }

fn corner(block: u32, height: u32, width: u32) -> Corner {
    let down = (p.rows + height - 1u) / height;
    let across = (p.columns + width - 1u) / width;
    return Corner(block / (down * across), block % down * height, block / down % across * width);
}
