// The parameters of all matrix products: y = alpha * (a @ b) + beta * c for each matrix of a batch. b is
// [depth, columns], or [columns, depth] if TRANSPOSED. The bias of a linear layer is a c with one row. Only rows
// from `first` on are computed.
struct Params {
    batch: u32, first: u32, rows: u32, columns: u32, second: u32, third: u32, depth: u32,
    alpha: f32, beta: f32, c_batch: u32, c_row: u32, c_column: u32,
}
