// y = the reduction of x over some dimensions. One invocation computes four neighbouring outputs.
@group(0) @binding(0) var<storage, read> x: array<x_word>;        // kept and reduced dimensions, interleaved
@group(0) @binding(1) var<storage, read_write> y: array<y_word>;  // [outputs]
@group(0) @binding(2) var<uniform> p: Params;

struct Params {
    outputs: u32,
    count: u32,       // elements per output
    correction: f32,
//#include reduce_fields
}

//#include reduce

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (4u * i >= p.outputs) { return; }
    var results: y_t4;
    for (var n = 0u; n < 4u; n++) {
        if (4u * i + n < p.outputs) { results[n] = finish(fold(4u * i + n, 0u, p.count)); }
    }
    y_put(i, results);
}
