// Convolution of any dtype. One invocation computes four neighbouring elements of y.
@group(0) @binding(0) var<storage, read> x: array<x_word>;            // [batch, in_channels, input..]
@group(0) @binding(1) var<storage, read> weight: array<weight_word>;  // see lib/conv
@group(0) @binding(2) var<storage, read> bias: array<bias_word>;      // [out_channels]
@group(0) @binding(3) var<storage, read_write> y: array<y_word>;      // [batch, out_channels, output..]
@group(0) @binding(4) var<uniform> p: Params;
//#include conv

fn value(i: u32) -> y_t {
    let z = vec4<u32>(i % p.output.z);
    let row = i / p.output.z;
    let plane = row / p.output.y;
    let channel = plane / p.output.x % p.out_channels;
    let image = plane / p.output.x / p.out_channels;
    let ins = p.in_channels / p.groups;
    let first = image * p.in_channels + channel / (p.out_channels / p.groups) * ins;
    let step = volume(p.input);
    var sum = y_t(0);
    for (var a = 0u; a < p.kernel.x; a++) {
        let d = tap(vec4<u32>(plane % p.output.x), a, 0u).x;
        for (var b = 0u; b < p.kernel.y; b++) {
            let h = tap(vec4<u32>(row % p.output.y), b, 1u).x;
            for (var c = 0u; c < p.kernel.z; c++) {
                let w = tap(z, c, 2u).x;
                if (min(d, min(h, w)) < 0) { continue; }
                let source = first * step + (u32(d) * p.input.y + u32(h)) * p.input.z + u32(w);
                let by = first_weights(vec4<u32>(channel)).x + ((a * p.kernel.y + b) * p.kernel.z + c) * tap_step();
                for (var k = 0u; k < ins; k++) {
                    sum += y_t(x_at(source + k * step)) * y_t(weight_at(by + k * weight_step()));
                }
            }
        }
    }
    if (HAS_BIAS) { sum += y_t(bias_at(channel)); }
    if (CLAMPED) {  // NaN stays NaN
        sum = select(select(sum, y_t(p.low), sum < y_t(p.low)), y_t(p.high), sum > y_t(p.high));
    }
    return sum;
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (4u * i >= p.batch * p.out_channels * volume(p.output)) { return; }
    y_put(i, y_t4(value(4u * i), value(4u * i + 1u), value(4u * i + 2u), value(4u * i + 3u)));
}
