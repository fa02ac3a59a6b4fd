// y = x @ W^T, where each row of y has its own W: one of several, which `chosen` names. One invocation computes
// four neighbouring elements.
@group(0) @binding(0) var<storage, read> x: array<x_word>;              // [rows / sharing, depth]
@group(0) @binding(1) var<storage, read> weights: array<weights_word>;  // [matrices, columns, depth]
@group(0) @binding(2) var<storage, read_write> y: array<y_word>;        // [rows, columns]
@group(0) @binding(3) var<uniform> p: Params;

struct Params { rows: u32, columns: u32, depth: u32, sharing: u32 }

//#include experts

fn value(i: u32) -> f32 {
    let row = min(i / p.columns, p.rows - 1u);
    let from_x = x_row(row) * p.depth;
    let from_w = (first_weight_row(row) + i % p.columns) * p.depth;
    var sum = 0.0;
    if (p.depth % 4u == 0u) {
        for (var k = 0u; k < p.depth / 4u; k++) {
            sum += dot(vec4<f32>(x_quad(from_x / 4u + k)), vec4<f32>(weights_quad(from_w / 4u + k)));
        }
        return sum;
    }
    for (var k = 0u; k < p.depth; k++) { sum += f32(x_at(from_x + k)) * f32(weights_at(from_w + k)); }
    return sum;
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (4u * i >= p.rows * p.columns) { return; }
    y_put(i, y_t4(vec4<f32>(value(4u * i), value(4u * i + 1u), value(4u * i + 2u), value(4u * i + 3u))));
}
