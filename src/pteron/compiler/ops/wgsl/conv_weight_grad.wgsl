// The gradient of a convolution's weight: for every weight, the sum of products of all inputs and outputs
// that it connects.
@group(0) @binding(0) var<storage, read> places: array<places_word>;  // [batch, outs, output..]
@group(0) @binding(1) var<storage, read> image: array<image_word>;    // [batch, channels, input..]
@group(0) @binding(2) var<storage, read_write> y: array<y_word>;      // [outs, channels / groups, kernel..]
@group(0) @binding(3) var<uniform> p: Params;

struct Params {
    quads: u32,
    batch: u32,
    outs: u32,
    channels: u32,
    groups: u32,
    input: vec3<u32>,
    output: vec3<u32>,
    kernel: vec3<u32>,
    stride: vec3<u32>,
    padding: vec3<u32>,
    dilation: vec3<u32>,
}

fn gradient(i: u32) -> y_t {
    let tap = vec3<u32>(i / (p.kernel.y * p.kernel.z) % p.kernel.x, i / p.kernel.z % p.kernel.y, i % p.kernel.z);
    let each = p.channels / p.groups;
    let taps = p.kernel.x * p.kernel.y * p.kernel.z;
    let o = min(i / taps / each, p.outs - 1u);
    let channel = o / (p.outs / p.groups) * each + i / taps % each;
    let area = p.output.x * p.output.y * p.output.z;
    let shift = vec3<i32>(tap * p.dilation) - vec3<i32>(p.padding);
    var sum = 0.0;
    for (var b = 0u; b < p.batch; b++) {
        let plane = (b * p.channels + channel) * p.input.x;
        for (var k = 0u; k < area; k++) {
            let at = vec3<u32>(k / (p.output.y * p.output.z), k / p.output.z % p.output.y, k % p.output.z);
            let from_ = vec3<i32>(at * p.stride) + shift;
            if (any(from_ < vec3<i32>(0)) || any(from_ >= vec3<i32>(p.input))) { continue; }
            let source = vec3<u32>(from_);
            let place = ((plane + source.x) * p.input.y + source.y) * p.input.z + source.z;
            sum += f32(places_at((b * p.outs + o) * area + k)) * f32(image_at(place));
        }
    }
    return y_t(sum);
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.quads) { return; }
    y_put(i, y_t4(gradient(4u * i), gradient(4u * i + 1u), gradient(4u * i + 2u), gradient(4u * i + 3u)));
}
