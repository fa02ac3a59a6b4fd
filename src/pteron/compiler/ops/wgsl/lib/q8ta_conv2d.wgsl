// The parameters of convolutions of int8 images.
struct Params {
    total: u32,          // elements of y
    in_channels: u32,
    out_channels: u32,
    groups: u32,
    channel_step: u32,
    tap_step: u32,
    scale_period: u32,
    in_zero: i32,
    in_scale: f32,
    out_inverse: f32,
    out_zero: f32,
    input: vec3<u32>,
    output: vec3<u32>,
    kernel: vec3<u32>,
    stride: vec3<i32>,
    padding: vec3<i32>,
    dilation: vec3<i32>,
}
