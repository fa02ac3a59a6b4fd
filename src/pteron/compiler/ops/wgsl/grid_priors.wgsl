// Row r of y is the position (x, y) of cell r of a grid, in pixels.
@group(0) @binding(0) var<storage, read_write> y: array<y_word>;  // [height * width, 2]
@group(0) @binding(1) var<uniform> p: Params;

struct Params { quads: u32, width: u32, stride: f32, offset: f32 }

fn cell(r: u32) -> vec2<f32> {
    return (vec2<f32>(f32(r % p.width), f32(r / p.width)) + p.offset) * p.stride;
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.quads) { return; }
    y_put(i, y_t4(vec4<f32>(cell(2u * i), cell(2u * i + 1u))));
}
