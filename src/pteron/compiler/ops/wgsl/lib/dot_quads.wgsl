// Shared by team and tile kernels of products. A kernel that includes this file defines:
// quad_t, sum4_t                         the types of four steps in depth, and of four sums
// extent()                               the number of matrices, rows, columns and quads
// row_quad(matrix, row, k)               quad k of a row of x; the row exists
// column_quad(matrix, column, k)         quad k of a column of W; the column exists
// times(x, w)                            the sum of the products of two quads
// finish_four(matrix, row, column, sum)  stores four neighbouring columns; the first one exists
struct Extent { matrices: u32, rows: u32, columns: u32, quads: u32 }

struct Corner { matrix: u32, row: u32, column: u32 }

// The first element of a workgroup's block. Neighbouring workgroups have the same columns, so they read the
// same part of W.
fn corner(size: Extent, block: u32, height: u32, width: u32) -> Corner {
    let down = (size.rows + height - 1u) / height;
    let across = (size.columns + width - 1u) / width;
    return Corner(block / (down * across), block % down * height, block / down % across * width);
}
