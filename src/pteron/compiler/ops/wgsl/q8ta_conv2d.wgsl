// Convolution of int8 images, plain, depthwise or TRANSPOSED, requantised. One invocation computes four
// neighbouring outputs from the inputs under their taps. If the four outputs are in one channel, a weight is
// read once for all four.
@group(0) @binding(0) var<storage, read> x: array<x_word>;              // [batch, in_channels, input.y, input.z]
@group(0) @binding(1) var<storage, read> weights: array<weights_word>;  // channel * channel_step + tap * tap_step + input
@group(0) @binding(2) var<storage, read> scales: array<scales_word>;    // [scale_period]
@group(0) @binding(3) var<storage, read> bias: array<bias_word>;        // [out_channels]
@group(0) @binding(4) var<storage, read_write> y: array<y_word>;        // [batch, out_channels, output.y, output.z]
@group(0) @binding(5) var<uniform> p: Params;
//#include q8ta_conv2d
//#include requantize

// The input index of a tap along one dimension; -1 for padding, or between two input elements.
fn tap(at: vec4<u32>, k: u32, d: u32) -> vec4<i32> {
    let reach = i32(k) * p.dilation[d];
    let size = vec4<i32>(i32(p.input[d]));
    if (TRANSPOSED) {
        let offset = vec4<i32>(at) + (p.padding[d] - reach);
        let index = offset / p.stride[d];
        let hit = (offset >= vec4<i32>(0)) & (index * p.stride[d] == offset) & (index < size);
        return select(vec4<i32>(-1), index, hit);
    }
    let index = vec4<i32>(at) * p.stride[d] + (reach - p.padding[d]);
    return select(vec4<i32>(-1), index, (index >= vec4<i32>(0)) & (index < size));
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let quad = flat_index(id, groups);
    if (4u * quad >= p.total) { return; }
    let i = min(vec4<u32>(4u * quad) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(p.total - 1u));
    let across = i % p.output.z;
    let down = i / p.output.z % p.output.y;
    let plane = i / (p.output.y * p.output.z);
    let channel = plane % p.out_channels;
    let one_channel = plane.x == plane.w;
    let ins = p.in_channels / p.groups;
    let area = p.input.y * p.input.z;
    let image = (plane / p.out_channels) * p.in_channels + (channel / (p.out_channels / p.groups)) * ins;
    var sum = vec4<i32>(0);
    for (var a = 0u; a < p.kernel.y; a++) {
        let row = tap(down, a, 1u);
        for (var b = 0u; b < p.kernel.z; b++) {
            let column = tap(across, b, 2u);
            let hit = (row >= vec4<i32>(0)) & (column >= vec4<i32>(0));
            if (!any(hit)) { continue; }
            let place = vec4<u32>(select(vec4<i32>(0), row * i32(p.input.z) + column, hit));
            var at = image * area + place;
            var by = channel * p.channel_step + (a * p.kernel.z + b) * p.tap_step;
            for (var k = 0u; k < ins; k++) {
                let v = vec4<i32>(x_at(at.x), x_at(at.y), x_at(at.z), x_at(at.w)) - vec4<i32>(p.in_zero);
                var w = vec4<i32>(weights_at(by.x));
                if (!one_channel) { w = vec4<i32>(w.x, weights_at(by.y), weights_at(by.z), weights_at(by.w)); }
                sum += select(vec4<i32>(0), v * w, hit);
                at += vec4<u32>(area);
                by += vec4<u32>(1u);
            }
        }
    }
    var v = vec4<f32>(0.0);
    for (var c = 0u; c < 4u; c++) {
        v[c] = f32(sum[c]) * (p.in_scale * f32(scales_at(channel[c] % p.scale_period)));
        if (HAS_BIAS) { v[c] += f32(bias_at(channel[c])); }
    }
    if (RELU) { v = max(v, vec4<f32>(0.0)); }
    y_put(quad, y_t4(requantize(v)));
}
