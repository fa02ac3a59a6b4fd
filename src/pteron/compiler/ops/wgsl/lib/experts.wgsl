// The rows of a product. With EXPERTS, the weights are matrices of p.columns rows each, one after the other.
// `chosen` is the number of the matrix for each row of y. p.sharing rows of y are made from one row of x.
//#if EXPERTS
@group(0) @binding(9) var<storage, read> chosen: array<chosen_word>;  // [rows]
//#end

// The first row of the weights for a row of y.
fn first_weight_row(row: u32) -> u32 {
    var first = 0u;
//#if EXPERTS
    first = u32(chosen_at(row)) * p.columns;
//#end
    return first;
}

fn x_row(row: u32) -> u32 {
    var source = row;
//#if EXPERTS
    source = row / p.sharing;
//#end
    return source;
}
