// One state of those that the eight lanes of a workgroup hold, for all of them. All must hold one.
// The rule supplies `state_t`, `merge`, and `swapped`: the state of the lane whose number differs in some bits.
fn join(mine: state_t, lane: u32, filled: u32) -> state_t {
    let two = merge(mine, swapped(mine, 1u));
    let four = merge(two, swapped(two, 2u));
    return merge(four, swapped(four, 4u));
}
