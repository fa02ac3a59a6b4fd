// The first kernel of a long reduction: it computes the state of each part of the elements of each output.
@group(0) @binding(0) var<storage, read> x: array<x_word>;              // kept and reduced dimensions, interleaved
@group(0) @binding(1) var<storage, read_write> states: array<state_t>;  // [outputs, parts]
@group(0) @binding(2) var<uniform> p: Params;

struct Params {
    outputs: u32,
    count: u32,
    parts: u32,
    part: u32,        // elements per part, except the last part
//#include reduce_fields
}

//#include reduce

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.outputs * p.parts) { return; }
    let begin = (i % p.parts) * p.part;
    states[i] = fold(i / p.parts, begin, min(p.count, begin + p.part));
}
