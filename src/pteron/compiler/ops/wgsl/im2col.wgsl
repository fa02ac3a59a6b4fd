// y = the elements of x under each position of a window: one row for each channel and window element, one
// column for each position.
@group(0) @binding(0) var<storage, read> x: array<x_word>;        // [batch * channels, input.y, input.z]
@group(0) @binding(1) var<storage, read_write> y: array<y_word>;  // [batch * channels, kernel.y, kernel.z, output.y, output.z]
@group(0) @binding(2) var<uniform> p: Params;

struct Params {
    quads: u32,
    input: vec3<u32>,
    output: vec3<u32>,
    kernel: vec3<u32>,
    stride: vec3<i32>,
    padding: vec3<i32>,
    dilation: vec3<i32>,
}

fn value(i: u32) -> y_t {
    let tap = i / (p.output.y * p.output.z);
    let place = vec2<i32>(vec2<u32>(i / p.output.z % p.output.y, i % p.output.z));
    let reach = vec2<i32>(vec2<u32>(tap / p.kernel.z % p.kernel.y, tap % p.kernel.z)) * p.dilation.yz;
    let at = place * p.stride.yz - p.padding.yz + reach;
    if (any(at < vec2<i32>(0)) || any(at >= vec2<i32>(p.input.yz))) { return y_t(0); }
    let plane = tap / (p.kernel.y * p.kernel.z);
    return y_t(x_at((plane * p.input.y + u32(at.x)) * p.input.z + u32(at.y)));
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.quads) { return; }
    y_put(i, y_t4(value(4u * i), value(4u * i + 1u), value(4u * i + 2u), value(4u * i + 3u)));
}
