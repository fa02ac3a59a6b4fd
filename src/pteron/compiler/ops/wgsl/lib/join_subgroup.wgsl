// Merge the states of the eight lanes of a workgroup. All lanes must have a state, and all get the result.
// The rule supplies `state_t`, `merge`, and `swapped`, which reads the state of the lane whose number differs
// in the bits of a mask.
fn join(mine: state_t, lane: u32, filled: u32) -> state_t {
    let two = merge(mine, swapped(mine, 1u));
    let four = merge(two, swapped(two, 2u));
    return merge(four, swapped(four, 4u));
}
