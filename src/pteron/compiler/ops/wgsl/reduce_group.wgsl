// A reduction by workgroups. The lanes of a workgroup divide the terms of an output, and then merge their
// states. The terms are elements of x, or the states of the parts of a longer reduction. The result may be a
// state too.
//#if OF_STATES
@group(0) @binding(0) var<storage, read> states: array<state_t>;      // [outputs, count]
//#else
@group(0) @binding(0) var<storage, read> x: array<x_word>;            // kept and reduced dimensions, interleaved
//#end
//#if TO_WORDS
@group(0) @binding(1) var<storage, read_write> y: array<result_t>;    // [outputs, parts]
//#else
@group(0) @binding(1) var<storage, read_write> y: array<y_word>;      // [outputs]
//#end
@group(0) @binding(2) var<uniform> p: Params;

struct Params {
    outputs: u32,
    terms: u32,       // per output
    parts: u32,       // per output
    part: u32,        // terms per part, except the last part
    count: u32,       // elements per output
    correction: f32,
//#if not OF_STATES
//#include reduce_fields
//#end
}

//#if OF_STATES
fn kept_offset(output: u32) -> u32 { return output * p.terms; }
fn term(base: u32, k: u32) -> state_t { return states[base + k]; }
//#else
//#include reduce
fn term(base: u32, k: u32) -> state_t { return lift(x_at(base + element_offset(k)), k); }
//#end

//#include join

// The state of one part of the terms of an output. Neighbouring lanes read neighbouring terms.
fn part_state(i: u32, lane: u32) -> state_t {
    let begin = i % p.parts * p.part;
    let end = min(begin + p.part, p.terms);
    let base = kept_offset(i / p.parts);
    var state: state_t;
    if (begin + lane < end) { state = term(base, begin + lane); }
    for (var turn = 1u; turn < (end - begin + LANES - 1u) / LANES; turn++) {
        let k = begin + turn * LANES + lane;
        if (k < end) { state = merge(state, term(base, k)); }
    }
    return join(state, lane, min(end - begin, LANES));
}

@compute @workgroup_size(LANES)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let group = flat_group(id, groups);
//#if TO_WORDS
    if (group >= p.outputs * p.parts) { return; }
    let state = part_state(group, lane);
    if (lane == 0u) { y[group] = finish(state); }
//#else
    if (4u * group >= p.outputs) { return; }
    var results: y_t4;
    for (var n = 0u; n < min(4u, p.outputs - 4u * group); n++) {
        results[n] = finish(part_state(4u * group + n, lane));
    }
    if (lane == 0u) { y_put(group, results); }
//#end
}
