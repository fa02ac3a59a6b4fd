// y = x on one side of a diagonal, and 0 on the other side.
@group(0) @binding(0) var<storage, read> x: array<x_word>;        // [batch, rows, columns]
@group(0) @binding(1) var<storage, read_write> y: array<y_word>;  // [batch, rows, columns]
@group(0) @binding(2) var<uniform> p: Params;

struct Params { quads: u32, rows: u32, columns: u32, diagonal: i32 }

fn value(i: u32) -> y_t {
    let above = i32(i % p.columns) - i32((i / p.columns) % p.rows) - p.diagonal;
    if (select(above <= 0, above >= 0, UPPER)) { return y_t(x_at(i)); }
    return y_t(0);
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.quads) { return; }
    y_put(i, y_t4(value(4u * i), value(4u * i + 1u), value(4u * i + 2u), value(4u * i + 3u)));
}
