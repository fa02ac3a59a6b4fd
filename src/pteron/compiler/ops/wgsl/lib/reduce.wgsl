// The positions in x of the elements of one output, and the state of a range of them. The rule supplies
// `lift` (the state of one element), `merge` (of two states) and `nothing` (the state of no elements).
fn kept_offset(i: u32) -> u32 {
    var rest = i;
    var at = 0u;
    for (var d = p.kept_rank; d > 0u; d--) {
        let size = p.kept_sizes[(d - 1u) >> 2u][(d - 1u) & 3u];
        at += (rest % size) * p.kept_strides[(d - 1u) >> 2u][(d - 1u) & 3u];
        rest /= size;
    }
    return at;
}

// The start of a run along the last of the reduced dimensions.
fn run_offset(run: u32) -> u32 {
    var rest = run;
    var at = 0u;
    for (var d = p.run_rank; d > 0u; d--) {
        let size = p.run_sizes[(d - 1u) >> 2u][(d - 1u) & 3u];
        at += (rest % size) * p.run_strides[(d - 1u) >> 2u][(d - 1u) & 3u];
        rest /= size;
    }
    return at;
}

// Element k of an output, in row-major order.
fn element_offset(k: u32) -> u32 {
    if (p.run_rank == 0u) { return k * p.run_stride; }
    return run_offset(k / p.run_length) + k % p.run_length * p.run_stride;
}

// The state of the elements `begin` .. `end` of output i, in row-major order.
fn fold(i: u32, begin: u32, end: u32) -> state_t {
    if (begin >= end) { return nothing(); }
    let base = kept_offset(i);
    var state: state_t;
    for (var run = begin / p.run_length; run < (end + p.run_length - 1u) / p.run_length; run++) {
        var k = max(begin, run * p.run_length);
        let stop = min(end, (run + 1u) * p.run_length);
        var at = base + run_offset(run) + (k % p.run_length) * p.run_stride;
        if (k == begin) {
            state = lift(x_at(at), k);
            k++;
            at += p.run_stride;
        }
        for (; k < stop; k++) {
            state = merge(state, lift(x_at(at), k));
            at += p.run_stride;
        }
    }
    return state;
}
