// What convolution kernels share. Transposed or not they gather: each output element visits the input elements
// that its taps fall on. Fewer than three spatial dimensions are lifted with ones.
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

// Where tap k of four output positions falls in the input, along one dimension; -1 where it falls on padding or,
// transposed, between two input elements.
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

// The weights of output channels' first taps on the first input channel of their group.
fn first_weights(channel: vec4<u32>) -> vec4<u32> {
    let ins = p.in_channels / p.groups;
    let outs = p.out_channels / p.groups;
    if (TRANSPOSED) { return (channel / outs * ins * outs + channel % outs) * volume(p.kernel); }
    return channel * ins * volume(p.kernel);
}

// From an input channel's weight to the next one's.
fn weight_step() -> u32 {
    return select(1u, p.out_channels / p.groups, TRANSPOSED) * volume(p.kernel);
}
