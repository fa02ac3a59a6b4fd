// Add the parts of a convolution whose depth was split. One invocation computes four neighbouring elements.
@group(0) @binding(0) var<storage, read> parts: array<vec4<f32>>;    // [splits, elements of y]
@group(0) @binding(1) var<storage, read> bias: array<f32>;           // [channels]
@group(0) @binding(2) var<storage, read_write> y: array<vec4<f32>>;  // [batch, channels, positions]
@group(0) @binding(3) var<uniform> p: Params;

struct Params {
    splits: u32,
    quads: u32,  // of a part
    channels: u32,
    positions: u32,
    has_bias: u32,
    clamped: u32,
    low: f32,
    high: f32,
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.quads) { return; }
    var v = parts[i];
    for (var split = 1u; split < p.splits; split++) { v += parts[split * p.quads + i]; }
    if (p.has_bias == 1u) {
        let channel = (vec4<u32>(4u * i) + vec4<u32>(0u, 1u, 2u, 3u)) / p.positions % p.channels;
        v += vec4<f32>(bias[channel.x], bias[channel.y], bias[channel.z], bias[channel.w]);
    }
    if (p.clamped == 1u) { v = clamp_nan4(v, vec4<f32>(p.low), vec4<f32>(p.high)); }
//#if EPILOGUE
    v = epilogue(v);
//#end
    y[i] = v;
}
