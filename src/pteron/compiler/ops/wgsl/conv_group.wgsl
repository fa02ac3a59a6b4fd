// Convolution as a matrix product by workgroups, for each image and group of channels: the weights [channels,
// inputs * taps] times the inputs under the taps [inputs * taps, positions]. The second operand is read from
// x, and is never stored. A tap is an element of the window.
@group(0) @binding(0) var<storage, read> x: array<x_word>;            // [batch, in_channels, input..]
@group(0) @binding(1) var<storage, read> weight: array<weight_word>;  // see lib/conv
@group(0) @binding(2) var<storage, read> bias: array<bias_word>;      // [out_channels]
@group(0) @binding(3) var<storage, read_write> y: array<y_word>;      // [batch, out_channels, output..]
@group(0) @binding(4) var<uniform> p: Params;
//#include conv

//#include float_quads
//#include put_four

fn inputs() -> u32 { return p.in_channels / p.groups; }
fn channels() -> u32 { return p.out_channels / p.groups; }
fn depth() -> u32 { return inputs() * volume(p.kernel); }

fn extent() -> Extent { return Extent(p.batch * p.groups, channels(), volume(p.output), (depth() + 3u) / 4u); }

fn row_quad(matrix: u32, row: u32, k: u32) -> vec4<f32> {
    let at = first_weights(vec4<u32>(matrix % p.groups * channels() + row)).x + 4u * k * tap_step();
    let next = tap_step();
    let v = vec4<f32>(vec4(weight_at(at), weight_at(at + next), weight_at(at + 2u * next), weight_at(at + 3u * next)));
    return select(vec4<f32>(0.0), v, vec4<u32>(4u * k) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(depth()));
}

fn column_quad(matrix: u32, column: u32, k: u32) -> vec4<f32> {
    let step = volume(p.input);
    let taps = volume(p.kernel);
    let last = inputs() - 1u;
    let origin = matrix * inputs();  // the first channel of the group
    var v: vec4<f32>;
    if (POINTWISE) {
        for (var n = 0u; n < 4u; n++) {
            let channel = min(4u * k + n, last);
            v[n] = select(0.0, f32(x_at((origin + channel) * step + column)), channel == 4u * k + n);
        }
        return v;
    }
    let row = column / p.output.z;
    let place = vec3<i32>(vec3<u32>(row / p.output.y, row % p.output.y, column % p.output.z)) * p.stride - p.padding;
    var channel = 4u * k / taps;
    let tap = 4u * k % taps;
    var at = vec3<u32>(tap / p.kernel.z / p.kernel.y, tap / p.kernel.z % p.kernel.y, tap % p.kernel.z);
    for (var n = 0u; n < 4u; n++) {
        let spot = place + vec3<i32>(at) * p.dilation;
        let inside = all(spot >= vec3<i32>(0)) && all(vec3<u32>(spot) < p.input) && channel <= last;
        let offset = select(0u, u32((spot.x * i32(p.input.y) + spot.y) * i32(p.input.z) + spot.z), inside);
        v[n] = select(0.0, f32(x_at((origin + min(channel, last)) * step + offset)), inside);
        // The next tap, or the first tap of the next channel.
        at.z++;
        if (at.z == p.kernel.z) { at = vec3<u32>(at.x, at.y + 1u, 0u); }
        if (at.y == p.kernel.y) { at = vec3<u32>(at.x + 1u, 0u, 0u); }
        if (at.x == p.kernel.x) { at = vec3<u32>(0u); channel++; }
    }
    return v;
}

fn finish_four(matrix: u32, row: u32, column: u32, sum: vec4<f32>) {
    let plane = matrix * channels() + row;
    var v = sum;
    if (HAS_BIAS) { v += f32(bias_at(plane % p.out_channels)); }
    if (CLAMPED) { v = clamp_nan4(v, vec4<f32>(p.low), vec4<f32>(p.high)); }
    put_four(plane * volume(p.output) + column, volume(p.output) - column, v);
}

//#include tile_core
