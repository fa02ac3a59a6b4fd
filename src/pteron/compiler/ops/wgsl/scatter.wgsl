// y[i . y_strides + index[i . index_strides] * stride] = combine(the old value, source[i]). One invocation
// per source element. y has four-byte elements, and another kernel has written the old values. If several
// indices are equal, a compare-and-exchange applies all of them, one after the other.
@group(0) @binding(0) var<storage, read> index: array<index_word>;     // at index_strides
@group(0) @binding(1) var<storage, read> source: array<source_word>;   // at source_strides
@group(0) @binding(2) var<storage, read_write> y: array<atomic<u32>>;  // at y_strides
@group(0) @binding(3) var<uniform> p: Params;

struct Params {
    count: u32,
    rank: u32,
    length: u32,  // of the indexed dimension
    stride: u32,
    value: f32,   // stored if there is no source tensor
    whole: i32,   // the same as an integer
    sizes: array<vec4<u32>, 2>,
    y_strides: array<vec4<u32>, 2>,
    index_strides: array<vec4<u32>, 2>,
    source_strides: array<vec4<u32>, 2>,
}

//#include broadcast
//#include wrap

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.count) { return; }
    let along = wrap(i32(index_at(operand_index(i, p.index_strides))), p.length);
    let target_at = operand_index(i, p.y_strides) + along * p.stride;
    var value = plain_value();
    if (HAS_SOURCE) { value = kind(source_at(operand_index(i, p.source_strides))); }
    if (REPLACES) {
        atomicStore(&y[target_at], bitcast<u32>(value));
        return;
    }
    var old = atomicLoad(&y[target_at]);
    loop {
        let next = bitcast<u32>(combine(bitcast<kind>(old), value));
        let seen = atomicCompareExchangeWeak(&y[target_at], old, next);
        if (seen.exchanged) { break; }
        old = seen.old_value;
    }
}
