// y[i] = start + i * step. The step of `full` is 0.
@group(0) @binding(0) var<storage, read_write> y: array<y_word>;  // [n]
@group(0) @binding(1) var<uniform> p: Params;

// s_start and s_step are for float tensors, k_start and k_step for integer tensors. The high
// words are for 64-bit integers.
struct Params { quads: u32, s_start: f32, s_step: f32, k_start: i32, k_step: i32, high_start: u32, high_step: u32 }

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.quads) { return; }
    y_put(i, value(vec4<u32>(4u * i) + vec4<u32>(0u, 1u, 2u, 3u)));
}
