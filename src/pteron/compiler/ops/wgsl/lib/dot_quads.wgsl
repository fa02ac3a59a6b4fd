// Shared by team and tile kernels of products. A kernel that includes this file defines:
// quad_t, sum4_t                         the types of a quad, and of four sums
// step4_t                                four neighbours of a quad's part: a tile kernel has STEPS parts of a quad
// step_of(quad, j)                       part j of a quad
// plus_product(sum4, x, w4)              the sums, and the products of a part of x with four of W
// extent()                               the number of matrices, rows, columns and quads
// row_quad(matrix, row, k)               quad k of a row of x; the row exists
// column_quad(matrix, column, k)         quad k of a column of W; the column exists
// times(x, w)                            the sum of the products of two quads
// total4_t                               four sums over the whole depth
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
