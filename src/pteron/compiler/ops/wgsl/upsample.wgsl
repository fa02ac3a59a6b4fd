// y = x resized, plane by plane. The rule supplies `sample(plane, y, x)` for a position in the output.
@group(0) @binding(0) var<storage, read> x: array<x_word>;        // [planes, in_height, in_width]
@group(0) @binding(1) var<storage, read_write> y: array<y_word>;  // [planes, height, width]
@group(0) @binding(2) var<uniform> p: Params;

// The scales are input elements per output element.
struct Params {
    quads: u32,
    in_height: u32,
    in_width: u32,
    height: u32,
    width: u32,
    scale_y: f32,
    scale_x: f32,
}

fn value(i: u32) -> y_t {
    let plane = i / (p.height * p.width) * p.in_height * p.in_width;
    return y_t(sample(plane, i / p.width % p.height, i % p.width));
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.quads) { return; }
    y_put(i, y_t4(value(4u * i), value(4u * i + 1u), value(4u * i + 2u), value(4u * i + 3u)));
}
