// Move the running statistics towards the statistics of a batch, by `momentum`.
@group(0) @binding(0) var<storage, read> mean: array<mean_word>;                          // [channels]
@group(0) @binding(1) var<storage, read> rstd: array<rstd_word>;                          // [channels]
@group(0) @binding(2) var<storage, read_write> running_mean: array<running_mean_word>;    // [channels]
@group(0) @binding(3) var<storage, read_write> running_var: array<running_var_word>;      // [channels]
@group(0) @binding(4) var<uniform> p: Params;

// unbiased: n / (n - 1) for the n elements of a channel.
struct Params { channels: u32, momentum: f32, eps: f32, unbiased: f32 }

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (4u * i >= p.channels) { return; }
    let r = vec4<f32>(rstd_quad(i));
    let variance = (1.0 / (r * r) - p.eps) * p.unbiased;
    running_mean_put(i, mix(running_mean_quad(i), vec4<f32>(mean_quad(i)), vec4<f32>(p.momentum)));
    running_var_put(i, mix(running_var_quad(i), variance, vec4<f32>(p.momentum)));
}
