// The sum and the maximum over eight lanes. Every lane gets it. Software adapters compile subgroupAdd and
// subgroupMax a hundred times longer.
fn sum_of_eight(mine: f32) -> f32 {
    let two = mine + subgroupShuffleXor(mine, 1u);
    let four = two + subgroupShuffleXor(two, 2u);
    return four + subgroupShuffleXor(four, 4u);
}
fn max_of_eight(mine: f32) -> f32 {
    let two = max(mine, subgroupShuffleXor(mine, 1u));
    let four = max(two, subgroupShuffleXor(two, 2u));
    return max(four, subgroupShuffleXor(four, 4u));
}
