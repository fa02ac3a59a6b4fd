// Convolution over three spatial dimensions (fewer are lifted with ones), any dtype, groups, stride, padding and
// dilation. Transposed or not, it gathers: each output element visits the input elements that its taps fall on.
@group(0) @binding(0) var<storage, read> x: array<x_word>;            // [batch, in_channels, input.x, input.y, input.z]
@group(0) @binding(1) var<storage, read> weight: array<weight_word>;  // [out, in / groups, kernel..], transposed: [in, out / groups, kernel..]
@group(0) @binding(2) var<storage, read> bias: array<bias_word>;      // [out]
@group(0) @binding(3) var<storage, read_write> y: array<y_word>;      // [batch, out_channels, output..]
@group(0) @binding(4) var<uniform> p: Params;

struct Params {
    quads: u32,
    in_channels: u32,
    out_channels: u32,
    groups: u32,
    input: vec3<u32>,
    output: vec3<u32>,
    kernel: vec3<u32>,
    stride: vec3<i32>,
    padding: vec3<i32>,
    dilation: vec3<i32>,
    low: f32,
    high: f32,
}

// Where a tap falls in the input along one dimension; -1 where it falls on padding, or between input elements.
fn tap(at: u32, k: u32, d: u32) -> i32 {
    let reach = i32(k) * p.dilation[d];
    if (TRANSPOSED) {
        let offset = i32(at) + p.padding[d] - reach;
        let index = offset / p.stride[d];
        return select(-1, index, offset >= 0 && index * p.stride[d] == offset && index < i32(p.input[d]));
    }
    let index = i32(at) * p.stride[d] - p.padding[d] + reach;
    return select(-1, index, index >= 0 && index < i32(p.input[d]));
}

fn value(i: u32) -> y_t {
    let at = vec3<u32>(
        i / (p.output.y * p.output.z) % p.output.x,
        i / p.output.z % p.output.y,
        i % p.output.z,
    );
    let plane = i / (p.output.x * p.output.y * p.output.z);
    let image = plane / p.out_channels;
    let channel = plane % p.out_channels;
    let ins = p.in_channels / p.groups;
    let outs = p.out_channels / p.groups;
    let group = channel / outs;
    let volume = p.input.x * p.input.y * p.input.z;
    let taps = p.kernel.x * p.kernel.y * p.kernel.z;
    let x_first = (image * p.in_channels + group * ins) * volume;
    var w_first = channel * ins * taps;
    var w_step = taps;
    if (TRANSPOSED) {
        w_first = (group * ins * outs + channel % outs) * taps;
        w_step = outs * taps;
    }
    var sum = y_t(0);
    for (var a = 0u; a < p.kernel.x; a++) {
        let d = tap(at.x, a, 0u);
        if (d < 0) { continue; }
        for (var b = 0u; b < p.kernel.y; b++) {
            let h = tap(at.y, b, 1u);
            if (h < 0) { continue; }
            for (var c = 0u; c < p.kernel.z; c++) {
                let w = tap(at.z, c, 2u);
                if (w < 0) { continue; }
                let source = x_first + (u32(d) * p.input.y + u32(h)) * p.input.z + u32(w);
                let by = w_first + (a * p.kernel.y + b) * p.kernel.z + c;
                for (var k = 0u; k < ins; k++) {
                    sum += y_t(x_at(source + k * volume)) * y_t(weight_at(by + k * w_step));
                }
            }
        }
    }
    if (HAS_BIAS) { sum += y_t(bias_at(channel)); }
    if (CLAMPED) { sum = clamp(sum, y_t(p.low), y_t(p.high)); }
    return sum;
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.quads) { return; }
    y_put(i, y_t4(value(4u * i), value(4u * i + 1u), value(4u * i + 2u), value(4u * i + 3u)));
}
