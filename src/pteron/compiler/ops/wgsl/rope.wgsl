// Rotary embedding of x with the rows of a table. x is [B, S, H, D] or [B, H, S, D], and S selects the row. A
// table may also have a dimension B.
@group(0) @binding(0) var<storage, read> x: array<x_word>;                  // [outer, length, inner, width]
@group(0) @binding(1) var<storage, read> cos_table: array<cos_table_word>;  // [.., positions, table]
@group(0) @binding(2) var<storage, read> sin_table: array<sin_table_word>;  // [.., positions, table]
@group(0) @binding(3) var<storage, read_write> y: array<y_word>;            // as x
@group(0) @binding(4) var<uniform> start: vec4<i32>;
@group(0) @binding(5) var<uniform> p: Params;
//#if SEGMENTED
@group(0) @binding(6) var<storage, read> positions: array<i32>;             // [length]
//#end

// After every `batch` rows of x, the table row is increased by `apart`.
struct Params {
    quads: u32, width: u32, inner: u32, length: u32, table: u32, rotated: u32, batch: u32, apart: u32,
}

fn source_at(which: u32, i: u32) -> f32 { return f32(x_at(i)); }
fn source_quad(which: u32, i: u32) -> vec4<f32> { return vec4<f32>(x_quad(i)); }

fn row_of(i: u32, inner: u32) -> u32 {
    let row = i / p.width;
    var table_row = u32(start.x) + row / inner % p.length + row / p.batch * p.apart;
//#if SEGMENTED
    table_row = u32(positions[row / inner % p.length]);
//#end
    return table_row;
}

//#include rope

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.quads) { return; }
    y_put(i, y_t4(rotated_quad(0u, i, p.inner)));
}
