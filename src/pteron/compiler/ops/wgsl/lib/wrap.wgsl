// An index as a position in a dimension. A negative index counts from the end. An index out of range is
// clamped.
fn wrap(index: i32, length: u32) -> u32 {
    let along = select(index, index + i32(length), index < 0);
    return u32(clamp(along, 0, i32(length) - 1));
}
