// y[i] = (weight[indices[i]] - zero point) * scale, with one scale per row or group. A byte has PER_BYTE
// weights. The first of two is in the high nibble, and a nibble is the weight plus 8. The first of four is in
// the lowest bits, and two bits are the weight plus 2.
@group(0) @binding(0) var<storage, read> weight: array<weight_word>;    // [rows, width / PER_BYTE]
@group(0) @binding(1) var<storage, read> scales: array<scales_word>;    // [rows, groups]
@group(0) @binding(2) var<storage, read> zeros: array<zeros_word>;      // [rows, groups]
@group(0) @binding(3) var<storage, read> indices: array<indices_word>;  // [n]
@group(0) @binding(4) var<storage, read_write> y: array<y_word>;        // [n, width]
@group(0) @binding(5) var<uniform> p: Params;

struct Params { quads: u32, width: u32, rows: u32, group: u32, groups: u32 }

fn stored(i: u32) -> f32 {
    if (PER_BYTE == 1u) { return f32(weight_at(i)); }
    let byte = u32(weight_at(i / PER_BYTE)) & 255u;
    if (PER_BYTE == 4u) { return f32((byte >> (2u * (i % 4u))) & 3u) - 2.0; }
    return f32(select(byte >> 4u, byte & 15u, i % 2u == 1u)) - 8.0;
}

fn value(i: u32) -> f32 {
    let row = min(u32(indices_at(i / p.width)), p.rows - 1u);
    let column = i % p.width;
    let group = row * p.groups + column / p.group;
    var zero = 0.0;
    if (HAS_ZEROS) { zero = f32(zeros_at(group)); }
    return (stored(row * p.width + column) - zero) * f32(scales_at(group));
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.quads) { return; }
    y_put(i, y_t4(vec4<f32>(value(4u * i), value(4u * i + 1u), value(4u * i + 2u), value(4u * i + 3u))));
}
