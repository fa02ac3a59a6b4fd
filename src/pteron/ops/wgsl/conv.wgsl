// Convolution of float32. One invocation computes CHANNELS (1 or 4) output channels of one group at four
// neighbouring positions, so that each load serves four products.
@group(0) @binding(0) var<storage, read> x: array<f32>;        // [batch, in_channels, input..]
@group(0) @binding(1) var<storage, read> weight: array<f32>;   // [out, in / groups, kernel..] or [in, out / groups, kernel..]
@group(0) @binding(2) var<storage, read> bias: array<f32>;     // [out_channels]
@group(0) @binding(3) var<storage, read_write> y: array<f32>;  // [batch, out_channels, output..]
@group(0) @binding(4) var<uniform> p: Params;
//#include conv

fn store(image: u32, channel: u32, position: u32, sum: vec4<f32>) {
    var v = sum;
    if (HAS_BIAS) { v += bias[channel]; }
    if (CLAMPED) { v = clamp(v, vec4<f32>(p.low), vec4<f32>(p.high)); }
    let positions = volume(p.output);
    let first = (image * p.out_channels + channel) * positions + position;
    let left = min(4u, positions - position);
    for (var j = 0u; j < left; j++) { y[first + j] = v[j]; }
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let positions = volume(p.output);
    let across = (positions + 3u) / 4u;
    let ins = p.in_channels / p.groups;
    let outs = p.out_channels / p.groups;
    let tiles = (outs + CHANNELS - 1u) / CHANNELS;
    let i = flat_index(id, groups);
    let image = i / (across * tiles * p.groups);
    if (image >= p.batch) { return; }
    let group = i / (across * tiles) % p.groups;
    let in_group = i / across % tiles * CHANNELS;
    let channel = group * outs + in_group;
    let position = i % across * 4u;
    // Positions and channels past the end repeat the last one: loads stay in bounds, and no store follows.
    let at = min(vec4<u32>(position) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(positions - 1u));
    let row = at / p.output.z;
    let step = volume(p.input);
    let first = (image * p.in_channels + group * ins) * step;
    let ahead = min(vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(outs - 1u - in_group));
    let w_step = weight_step();
    var w_first = vec4<u32>(first_weight(channel));
    if (CHANNELS > 1u) { w_first += ahead * (first_weight(group * outs + min(1u, outs - 1u)) - first_weight(group * outs)); }
    var s0 = vec4<f32>(0.0);
    var s1 = vec4<f32>(0.0);
    var s2 = vec4<f32>(0.0);
    var s3 = vec4<f32>(0.0);
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
                var from_w = w_first + (a * p.kernel.y + b) * p.kernel.z + c;
                for (var k = 0u; k < ins; k++) {
                    let v = select(vec4<f32>(0.0), vec4<f32>(x[from_x.x], x[from_x.y], x[from_x.z], x[from_x.w]), inside);
                    s0 += v * weight[from_w.x];
                    if (CHANNELS > 1u) {
                        s1 += v * weight[from_w.y];
                        s2 += v * weight[from_w.z];
                        s3 += v * weight[from_w.w];
                    }
                    from_x += step;
                    from_w += w_step;
                }
            }
        }
    }
    store(image, channel, position, s0);
    if (CHANNELS > 1u) {
        if (in_group + 1u < outs) { store(image, channel + 1u, position, s1); }
        if (in_group + 2u < outs) { store(image, channel + 2u, position, s2); }
        if (in_group + 3u < outs) { store(image, channel + 3u, position, s3); }
    }
}
