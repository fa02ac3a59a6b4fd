// The second kernel of a long reduction: it merges the parts of each output in order.
@group(0) @binding(0) var<storage, read> states: array<state_t>;  // [outputs, parts]
@group(0) @binding(1) var<storage, read_write> y: array<y_word>;  // [outputs]
@group(0) @binding(2) var<uniform> p: Params;

struct Params { outputs: u32, count: u32, parts: u32, correction: f32 }

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (4u * i >= p.outputs) { return; }
    var results: y_t4;
    for (var n = 0u; n < 4u; n++) {
        let output = 4u * i + n;
        if (output < p.outputs) {
            var state = states[output * p.parts];
            for (var part = 1u; part < p.parts; part++) { state = merge(state, states[output * p.parts + part]); }
            results[n] = finish(state);
        }
    }
    y_put(i, results);
}
