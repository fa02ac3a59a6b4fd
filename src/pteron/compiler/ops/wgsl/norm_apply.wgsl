// y = (x - mean) * rstd * weight + bias. Each row of `width` elements has a mean and an rstd, each channel a
// weight and a bias.
@group(0) @binding(0) var<storage, read> x: array<x_word>;            // [rows, width], or [.., channels, inner]
@group(0) @binding(1) var<storage, read> stats: array<vec2<f32>>;     // [rows]
@group(0) @binding(2) var<storage, read> weight: array<weight_word>;  // [channels]
@group(0) @binding(3) var<storage, read> bias: array<bias_word>;      // [channels]
@group(0) @binding(4) var<storage, read_write> y: array<y_word>;      // as x
@group(0) @binding(5) var<uniform> p: Params;

struct Params { quads: u32, width: u32, channels: u32, inner: u32 }

fn value(i: u32, v: x_t) -> y_t {
    let s = stats[i / p.width];
    let channel = i / p.inner % p.channels;
    var result = (f32(v) - s.x) * s.y;
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
