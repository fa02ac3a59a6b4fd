// Merge the states of the first `filled` of LANES lanes, as a tree in workgroup memory. All lanes get the
// result. The rule supplies `state_t` and `merge`. The order of merges does not matter.
var<workgroup> joined: array<state_t, LANES>;

fn join(mine: state_t, lane: u32, filled: u32) -> state_t {
    joined[lane] = mine;
    for (var half = LANES / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (lane < half && lane + half < filled) { joined[lane] = merge(joined[lane], joined[lane + half]); }
    }
    return workgroupUniformLoad(&joined[0]);
}
