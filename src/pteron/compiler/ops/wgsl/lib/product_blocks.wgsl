// The first element of a workgroup's block of y. Neighbouring workgroups have the same columns, so they read
// the same part of b, which is usually the larger operand.
struct Corner { matrix: u32, row: u32, column: u32 }

fn corner(block: u32, height: u32, width: u32) -> Corner {
    let down = (p.rows - p.first + height - 1u) / height;
    let across = (p.columns + width - 1u) / width;
    return Corner(block / (down * across), p.first + block % down * height, block / down % across * width);
}
