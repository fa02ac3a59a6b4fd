// Shared by convolution kernels. Each output element reads the input elements under its taps, also if
// TRANSPOSED. A tap is an element of the window. There are always three spatial dimensions; missing ones have
// size 1.
struct Params {
    batch: u32,
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

fn volume(size: vec3<u32>) -> u32 { return size.x * size.y * size.z; }

// The input index of tap k for four output positions, along one dimension. It is -1 for padding and, if
// TRANSPOSED, between two input elements.
fn tap(at: vec4<u32>, k: u32, d: u32) -> vec4<i32> {
    let reach = i32(k) * p.dilation[d];
    let size = vec4<i32>(i32(p.input[d]));
    if (TRANSPOSED) {
        let offset = vec4<i32>(at) + p.padding[d] - reach;
        let index = offset / p.stride[d];
        let exact = index * p.stride[d] == offset;
        return select(vec4<i32>(-1), index, exact & (offset >= vec4<i32>(0)) & (index < size));
    }
    let index = vec4<i32>(at) * p.stride[d] - p.padding[d] + reach;
    return select(vec4<i32>(-1), index, (index >= vec4<i32>(0)) & (index < size));
}

// Weights are [out, in / groups, kernel..], or [in, out / groups, kernel..] if TRANSPOSED, or
// [in / groups, kernel.., out] if PACKED. The index of the first weight of an output channel: the first tap and
// the first input channel of its group.
fn first_weights(channel: vec4<u32>) -> vec4<u32> {
    let ins = p.in_channels / p.groups;
    let outs = p.out_channels / p.groups;
    if (PACKED) { return channel; }
    if (TRANSPOSED) { return (channel / outs * ins * outs + channel % outs) * volume(p.kernel); }
    return channel * ins * volume(p.kernel);
}

// The stride of the weights from one tap to the next.
fn tap_step() -> u32 { return select(1u, p.out_channels, PACKED); }

// The stride of the weights from one input channel to the next.
fn weight_step() -> u32 {
    if (PACKED) { return volume(p.kernel) * p.out_channels; }
    return select(1u, p.out_channels / p.groups, TRANSPOSED) * volume(p.kernel);
}
