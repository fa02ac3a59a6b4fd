// y[i] = weight[indices[i]], row by row.
@group(0) @binding(0) var<storage, read> weight: array<weight_word>;    // [rows, width]
@group(0) @binding(1) var<storage, read> indices: array<indices_word>;  // [n]
@group(0) @binding(2) var<storage, read_write> y: array<y_word>;        // [n, width]
@group(0) @binding(3) var<uniform> p: Params;

struct Params { quads: u32, width: u32, rows: u32 }

fn value(i: u32) -> y_t {
    let row = min(u32(indices_at(i / p.width)), p.rows - 1u);
    return y_t(weight_at(row * p.width + i % p.width));
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.quads) { return; }
    y_put(i, y_t4(value(4u * i), value(4u * i + 1u), value(4u * i + 2u), value(4u * i + 3u)));
}
