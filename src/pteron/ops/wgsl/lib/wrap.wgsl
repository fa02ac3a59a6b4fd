// An index as a place in a dimension. Negative ones count from the end; others beyond it stay inside.
fn wrap(index: i32, length: u32) -> u32 {
    let along = select(index, index + i32(length), index < 0);
    return u32(clamp(along, 0, i32(length) - 1));
}
