// y = x @ W^T + bias with coded W, for any depth, group size and dtype. One invocation computes four
// neighbouring elements.
@group(0) @binding(0) var<storage, read> x: array<x_word>;        // [rows, depth]
@group(0) @binding(1) var<storage, read> weights: array<u32>;     // [columns, row_bytes] bytes
//#include affine_scales
//#if HAS_BIAS
@group(0) @binding(4) var<storage, read> bias: array<bias_word>;  // [columns]
//#end
@group(0) @binding(5) var<storage, read_write> y: array<y_word>;  // [rows, columns]
@group(0) @binding(6) var<uniform> p: Params;
//#if OUTPUTS > 1
@group(0) @binding(7) var<storage, read_write> y2: array<y2_word>;  // [rows, columns2]
//#end
//#if OUTPUTS > 2
@group(0) @binding(8) var<storage, read_write> y3: array<y3_word>;  // [rows, columns3]
//#end

//#include affine_params
//#include affine_element
//#include experts
//#include put

fn value(i: u32) -> f32 {
    let row = min(i / p.columns, p.rows - 1u);
    let column = i % p.columns;
    let weight_row = first_weight_row(row) + column;
    var sum = 0.0;
    for (var k = 0u; k < p.depth; k++) {
        let line = line_of(weight_row, k / p.group);
        sum += f32(x_at(x_row(row) * p.depth + k)) * (code_at(weight_row, k) * line.scale + line.start);
    }
//#if HAS_BIAS
    sum += f32(bias_at(column));
//#end
    return sum;
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (4u * i >= p.rows * p.columns) { return; }
    put(i, y_t4(vec4<f32>(value(4u * i), value(4u * i + 1u), value(4u * i + 2u), value(4u * i + 3u))));
}
