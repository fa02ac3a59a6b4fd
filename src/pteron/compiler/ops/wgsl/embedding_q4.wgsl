// y[i] = dequantised weight[indices[i]], row by row.
@group(0) @binding(0) var<storage, read> weight: array<weight_word>;    // [rows, width / 2] bytes
@group(0) @binding(1) var<storage, read> scales: array<scales_word>;    // [rows, groups]
@group(0) @binding(2) var<storage, read> indices: array<indices_word>;  // [n]
@group(0) @binding(3) var<storage, read_write> y: array<y_word>;        // [n, width]
@group(0) @binding(4) var<uniform> p: Params;

struct Params { quads: u32, width: u32, rows: u32, group: u32, groups: u32 }

fn value(i: u32) -> f32 {
    let row = min(u32(indices_at(i / p.width)), p.rows - 1u);
    let c = i % p.width;
    let byte = u32(weight_at(row * (p.width / 2u) + c / 2u)) & 255u;
    let high = (c % 2u == 1u) == LOW_NIBBLE_FIRST;
    let nibble = select(byte & 15u, byte >> 4u, high);
    return (f32(nibble) - 8.0) * f32(scales_at(row * p.groups + c / p.group));
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.quads) { return; }
    y_put(i, y_t4(vec4<f32>(value(4u * i), value(4u * i + 1u), value(4u * i + 2u), value(4u * i + 3u))));
}
