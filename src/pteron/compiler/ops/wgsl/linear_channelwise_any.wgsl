// y = (x @ W^T) * scale per column, with W in 8 or 4 bits, any depth and dtype. One invocation computes four
// neighbouring elements. The rule supplies `columns_at(column, k)`.
@group(0) @binding(0) var<storage, read> x: array<x_word>;              // [rows, depth]
@group(0) @binding(1) var<storage, read> weight: array<weight_word>;    // [columns, packed] bytes
@group(0) @binding(2) var<storage, read> scales: array<scales_word>;    // [columns]
@group(0) @binding(3) var<storage, read_write> y: array<y_word>;        // [rows, columns]
@group(0) @binding(4) var<uniform> p: Params;

struct Params { rows: u32, columns: u32, depth: u32, packed: u32 }

fn value(i: u32) -> f32 {
    let row = min(i / p.columns, p.rows - 1u);
    let column = i % p.columns;
    var sum = 0.0;
    for (var k = 0u; k < p.depth; k++) { sum += f32(x_at(row * p.depth + k)) * columns_at(column, k); }
    return sum * f32(scales_at(column));
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (4u * i >= p.rows * p.columns) { return; }
    y_put(i, y_t4(vec4<f32>(value(4u * i), value(4u * i + 1u), value(4u * i + 2u), value(4u * i + 3u))));
}
