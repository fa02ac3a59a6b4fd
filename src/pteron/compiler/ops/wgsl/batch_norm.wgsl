// y = (x - mean) / sqrt(variance + eps) * weight + bias, with one value of each per channel.
// INVERTED: `variance` contains 1 / sqrt(variance + eps).
@group(0) @binding(0) var<storage, read> x: array<x_word>;                // [batch, channels, inner]
@group(0) @binding(1) var<storage, read> mean: array<mean_word>;          // [channels]
@group(0) @binding(2) var<storage, read> variance: array<variance_word>;  // [channels]
@group(0) @binding(3) var<storage, read> weight: array<weight_word>;      // [channels]
@group(0) @binding(4) var<storage, read> bias: array<bias_word>;          // [channels]
@group(0) @binding(5) var<storage, read_write> y: array<y_word>;          // as x
@group(0) @binding(6) var<uniform> p: Params;

struct Params { quads: u32, channels: u32, inner: u32, eps: f32 }

fn value(i: u32, v: x_t) -> y_t {
    let channel = i / p.inner % p.channels;
    var scale = f32(variance_at(channel));
    if (!INVERTED) { scale = inverseSqrt(scale + p.eps); }
    var result = (f32(v) - f32(mean_at(channel))) * scale;
    if (HAS_WEIGHT) { result *= f32(weight_at(channel)); }
    if (HAS_BIAS) { result += f32(bias_at(channel)); }
    return y_t(result);
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.quads) { return; }
    let v = x_quad(i);
    y_put(i, y_t4(value(4u * i, v.x), value(4u * i + 1u, v.y), value(4u * i + 2u, v.z), value(4u * i + 3u, v.w)));
}
