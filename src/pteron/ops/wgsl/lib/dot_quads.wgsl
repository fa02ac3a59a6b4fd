// What products by the workgroup have in common. A kernel says what is multiplied, in quads along the depth:
// quad_t, sum4_t                         what four steps in depth are kept as, and four sums
// extent()                               how many matrices, rows, columns and quads there are
// row_quad(matrix, row, k)               quad k of a row of x,
// column_quad(matrix, column, k)         and of a column of W: only of what there is
// times(x, w)                            the sum of the products of two quads
// finish_four(matrix, row, column, sum)  what becomes of four neighbouring columns, of which the first exists
struct Extent { matrices: u32, rows: u32, columns: u32, quads: u32 }

struct Corner { matrix: u32, row: u32, column: u32 }

// Where a workgroup's block begins. Neighbouring workgroups have the same columns, hence the same part of W.
fn corner(size: Extent, block: u32, height: u32, width: u32) -> Corner {
    let down = (size.rows + height - 1u) / height;
    let across = (size.columns + width - 1u) / width;
    return Corner(block / (down * across), block % down * height, block / down % across * width);
}
