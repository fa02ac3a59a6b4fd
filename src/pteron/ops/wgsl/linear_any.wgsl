// y = x @ weight^T + bias for any shape and dtype; one invocation computes four neighbouring elements of y.
@group(0) @binding(0) var<storage, read> x: array<x_word>;            // [rows, depth]
@group(0) @binding(1) var<storage, read> weight: array<weight_word>;  // [columns, depth]
@group(0) @binding(2) var<storage, read> bias: array<bias_word>;      // [columns]
@group(0) @binding(3) var<storage, read_write> y: array<y_word>;      // [rows, columns]
@group(0) @binding(4) var<uniform> p: Params;

struct Params { rows: u32, columns: u32, depth: u32 }

fn value(i: u32) -> y_t {
    let row = min(i / p.columns, p.rows - 1u);
    let column = i % p.columns;
    var sum = y_t(0);
    for (var k = 0u; k < p.depth; k++) {
        sum += y_t(x_at(row * p.depth + k)) * y_t(weight_at(column * p.depth + k));
    }
    if (HAS_BIAS) { sum += y_t(bias_at(column)); }
    return sum;
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (4u * i >= p.rows * p.columns) { return; }
    y_put(i, y_t4(value(4u * i), value(4u * i + 1u), value(4u * i + 2u), value(4u * i + 3u)));
}
