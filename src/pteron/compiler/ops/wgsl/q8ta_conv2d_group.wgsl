// Convolution of int8 images as a matrix product by workgroups, requantised. For each image and group of
// channels: the weights [channels, taps * inputs] times the inputs under the taps [taps * inputs, positions],
// four bytes at a time. The second operand is read from x. Rows of weights are whole words.
@group(0) @binding(0) var<storage, read> x: array<x_word>;              // [batch, in_channels, input.y, input.z]
@group(0) @binding(1) var<storage, read> weights: array<u32>;           // [out_channels, channel_step / 4]
@group(0) @binding(2) var<storage, read> scales: array<scales_word>;    // [scale_period]
@group(0) @binding(3) var<storage, read> bias: array<bias_word>;        // [out_channels]
@group(0) @binding(4) var<storage, read_write> y: array<y_word>;        // [batch, out_channels, output.y, output.z]
@group(0) @binding(5) var<uniform> p: Params;
//#include q8ta_conv2d
//#include requantize

//#include packed_quads

fn inputs() -> u32 { return p.in_channels / p.groups; }
fn channels() -> u32 { return p.out_channels / p.groups; }
fn positions() -> u32 { return p.output.y * p.output.z; }

fn extent() -> Extent {
    let matrices = p.total / (positions() * channels());
    let depth = inputs() * p.kernel.y * p.kernel.z;
    return Extent(select(0u, matrices, p.total > 0u), channels(), positions(), (depth + 3u) / 4u);
}

fn row_quad(matrix: u32, row: u32, k: u32) -> u32 {
    return weights[(matrix % p.groups * channels() + row) * (p.channel_step / 4u) + k];
}

// Outside of the image and past the depth, the value is the zero point, so it adds 0 to a sum.
fn column_quad(matrix: u32, column: u32, k: u32) -> u32 {
    let origin = matrix * inputs();  // the first channel of the group
    let place = vec2<i32>(vec2<u32>(column / p.output.z, column % p.output.z)) * p.stride.yz - p.padding.yz;
    let area = p.input.y * p.input.z;
    var channel = 4u * k % inputs();
    var tap = 4u * k / inputs();
    var v = vec4<i32>(p.in_zero);
    for (var n = 0u; n < 4u; n++) {
        let at = vec2<u32>(tap / p.kernel.z, tap % p.kernel.z);
        let spot = place + vec2<i32>(at) * p.dilation.yz;
        let inside = all(spot >= vec2<i32>(0)) && all(vec2<u32>(spot) < p.input.yz) && at.x < p.kernel.y;
        if (inside) { v[n] = x_at((origin + channel) * area + u32(spot.x) * p.input.z + u32(spot.y)); }
        // The next channel, or the first channel of the next tap.
        channel++;
        if (channel == inputs()) { channel = 0u; tap++; }
    }
    return pack4xI8(v);
}

fn times(a: u32, b: u32) -> i32 { return dot4I8Packed(a, b) - p.in_zero * dot4I8Packed(a, 0x01010101u); }

fn finish_four(matrix: u32, row: u32, column: u32, sum: vec4<i32>) {
    let plane = matrix * channels() + row;
    let channel = plane % p.out_channels;
    var v = vec4<f32>(sum) * (p.in_scale * f32(scales_at(channel % p.scale_period)));
    if (HAS_BIAS) { v += f32(bias_at(channel)); }
    if (RELU) { v = max(v, vec4<f32>(0.0)); }
    y_put((plane * positions() + column) / 4u, y_t4(requantize(v)));
}

//#include tile_core
