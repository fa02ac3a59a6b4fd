// Quantise weights to 4 bits: round(latent / scale) + 8. A byte has two weights, the even one in the low
// nibble. One invocation writes four bytes.
@group(0) @binding(0) var<storage, read> latent: array<latent_word>;    // [rows, columns]
@group(0) @binding(1) var<storage, read> scales: array<scales_word>;    // [ceil(columns / group), scale_row]
@group(0) @binding(2) var<storage, read_write> y: array<y_word>;        // [rows, packed] bytes
@group(0) @binding(3) var<uniform> p: Params;

struct Params { rows: u32, columns: u32, packed: u32, group: u32, scale_row: u32 }

fn nibble(row: u32, column: u32) -> i32 {
    if (column >= p.columns) { return 0; }
    let scale = f32(scales_at((column / p.group) * p.scale_row + row));
    if (scale == 0.0) { return 8; }
    return i32(clamp(round(f32(latent_at(row * p.columns + column)) / scale), -8.0, 7.0)) + 8;
}

fn value(i: u32) -> i32 {
    let row = min(i / p.packed, p.rows - 1u);
    let column = 2u * (i % p.packed);
    return nibble(row, column) | (nibble(row, column + 1u) << 4u);
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (4u * i >= p.rows * p.packed) { return; }
    y_put(i, y_t4(vec4<i32>(value(4u * i), value(4u * i + 1u), value(4u * i + 2u), value(4u * i + 3u))));
}
