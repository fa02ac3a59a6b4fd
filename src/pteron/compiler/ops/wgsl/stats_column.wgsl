// y = one of the two statistics of each row.
@group(0) @binding(0) var<storage, read> stats: array<vec2<f32>>;  // [rows]
@group(0) @binding(1) var<storage, read_write> y: array<y_word>;   // [rows]
@group(0) @binding(2) var<uniform> p: Params;

struct Params { rows: u32, width: u32, of_nothing: f32 }

fn value(row: u32) -> y_t {
    if (p.width == 0u) { return y_t(p.of_nothing); }
    return y_t(stats[min(row, p.rows - 1u)][COLUMN]);
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (4u * i >= p.rows) { return; }
    y_put(i, y_t4(value(4u * i), value(4u * i + 1u), value(4u * i + 2u), value(4u * i + 3u)));
}
