// Convolution of float32. One invocation computes CHANNELS (1, 4 or 8) output channels of one group at four
// neighbouring positions, so each load is used for many products. All invocations of a workgroup have the
// same channels and weights.
@group(0) @binding(0) var<storage, read> x: array<f32>;        // [batch, in_channels, input..]
@group(0) @binding(1) var<storage, read> weight: array<f32>;   // see lib/conv
@group(0) @binding(2) var<storage, read> bias: array<f32>;     // [out_channels]
@group(0) @binding(3) var<storage, read_write> y: array<f32>;  // [batch, out_channels, output..]
@group(0) @binding(4) var<uniform> p: Params;
//#include conv

fn store(image: u32, channel: u32, position: u32, sum: vec4<f32>) {
    var v = sum;
    if (HAS_BIAS) { v += bias[channel]; }
    if (CLAMPED) { v = clamp_nan4(v, vec4<f32>(p.low), vec4<f32>(p.high)); }
    let positions = volume(p.output);
    let first = (image * p.out_channels + channel) * positions + position;
    let left = min(4u, positions - position);
    for (var j = 0u; j < left; j++) { y[first + j] = v[j]; }
}

fn four_weights(at: vec4<u32>) -> vec4<f32> {
    return vec4<f32>(weight[at.x], weight[at.y], weight[at.z], weight[at.w]);
}

fn products(v: vec4<f32>, w: vec4<f32>) -> mat4x4<f32> { return mat4x4<f32>(v * w.x, v * w.y, v * w.z, v * w.w); }

@compute @workgroup_size(WG)
fn main(
    @builtin(local_invocation_index) lane: u32,
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let positions = volume(p.output);
    let blocks = (positions + 4u * WG - 1u) / (4u * WG);
    let ins = p.in_channels / p.groups;
    let outs = p.out_channels / p.groups;
    let tiles = (outs + CHANNELS - 1u) / CHANNELS;
    let tile = flat_group(id, groups) / blocks;
    let image = tile / (tiles * p.groups);
    let position = (flat_group(id, groups) % blocks * WG + lane) * 4u;
    if (image >= p.batch || position >= positions) { return; }
    let group = tile / tiles % p.groups;
    let in_group = tile % tiles * CHANNELS;
    let channels = min(CHANNELS, outs - in_group);
    let channel = group * outs + in_group;
    // Positions and channels past the end repeat the last one, so loads stay in bounds. They are not stored.
    let at = min(vec4<u32>(position) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(positions - 1u));
    let row = at / p.output.z;
    let step = volume(p.input);
    let first = (image * p.in_channels + group * ins) * step;
    let w_step = weight_step();
    let last = vec4<u32>(channel + channels - 1u);
    let near = first_weights(min(vec4<u32>(channel) + vec4<u32>(0u, 1u, 2u, 3u), last));
    let far = first_weights(min(vec4<u32>(channel) + vec4<u32>(4u, 5u, 6u, 7u), last));
    var low = mat4x4<f32>();   // channels 0 .. 3, by position
    var high = mat4x4<f32>();  // channels 4 .. 7
    for (var a = 0u; a < p.kernel.x; a++) {
        let d = tap(row / p.output.y, a, 0u);
        for (var b = 0u; b < p.kernel.y; b++) {
            let h = tap(row % p.output.y, b, 1u);
            for (var c = 0u; c < p.kernel.z; c++) {
                let w = tap(at % p.output.z, c, 2u);
                let inside = min(d, min(h, w)) >= vec4<i32>(0);
                if (!any(inside)) { continue; }
                let offset = vec4<u32>((d * i32(p.input.y) + h) * i32(p.input.z) + w);
                var from_x = first + select(vec4<u32>(0u), offset, inside);
                var from_w = ((a * p.kernel.y + b) * p.kernel.z + c) * tap_step();
                for (var k = 0u; k < ins; k++) {
                    let v = select(vec4<f32>(0.0), vec4<f32>(x[from_x.x], x[from_x.y], x[from_x.z], x[from_x.w]), inside);
                    if (CHANNELS == 1u) { low[0] += v * weight[near.x + from_w]; }
                    if (CHANNELS >= 4u) { low += products(v, four_weights(near + from_w)); }
                    if (CHANNELS >= 8u) { high += products(v, four_weights(far + from_w)); }
                    from_x += step;
                    from_w += w_step;
                }
            }
        }
    }
    for (var j = 0u; j < 4u; j++) {
        if (j < channels) { store(image, channel + j, position, low[j]); }
        if (CHANNELS >= 8u && j + 4u < channels) { store(image, channel + j + 4u, position, high[j]); }
    }
}
