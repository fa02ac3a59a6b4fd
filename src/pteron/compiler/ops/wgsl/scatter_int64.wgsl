// scatter for 64-bit integers. No atomic operation stores two words, so all stores to one element come from
// one invocation: the last `steps` elements of the source that differ only in their index.
@group(0) @binding(0) var<storage, read> index: array<index_word>;    // at index_strides
@group(0) @binding(1) var<storage, read> source: array<source_word>;  // at source_strides
@group(0) @binding(2) var<storage, read_write> y: array<y_word>;      // at y_strides
@group(0) @binding(3) var<uniform> p: Params;

struct Params {
    rows: u32,
    steps: u32,
    rank: u32,
    length: u32,  // of the indexed dimension
    stride: u32,
    low: u32,     // stored if there is no source tensor
    high: u32,
    sizes: array<vec4<u32>, 2>,
    y_strides: array<vec4<u32>, 2>,
    index_strides: array<vec4<u32>, 2>,
    source_strides: array<vec4<u32>, 2>,
}

//#include broadcast
//#include wrap

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let row = flat_index(id, groups);
    if (row >= p.rows) { return; }
    for (var i = row * p.steps; i < (row + 1u) * p.steps; i++) {
        let along = wrap(i32(index_at(operand_index(i, p.index_strides))), p.length);
        let at = operand_index(i, p.y_strides) + along * p.stride;
        var value = vec2<u32>(p.low, p.high);
        if (HAS_SOURCE) { value = source_at(operand_index(i, p.source_strides)); }
        y_set(at, combine(y_at(at), value));
    }
}
