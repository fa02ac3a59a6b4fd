// Unfold images along their width, for conv_subgroup: column c of row r of tap t is the input element under
// tap t of the window at column c. Padding is stored as zeros. Rows are whole quads. One invocation computes
// one quad.
@group(0) @binding(0) var<storage, read> x: array<x_word>;         // [planes, height, width]
@group(0) @binding(1) var<storage, read_write> y: array<y_word>;   // [planes, rows, taps, 4 * across]
@group(0) @binding(2) var<uniform> p: Params;

struct Params {
    quads: u32,
    height: u32,
    width: u32,
    rows: u32,
    taps: u32,
    across: u32,
    row_stride: u32,
    column_stride: u32,
    row_padding: u32,
    column_padding: u32,
    column_dilation: u32,
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.quads) { return; }
    let tap = i / p.across % p.taps;
    let line = i / p.across / p.taps;
    let row = line % p.rows * p.row_stride - p.row_padding;  // above the image this is a large number
    let first = 4u * (i % p.across) * p.column_stride + tap * p.column_dilation - p.column_padding;
    let column = vec4<u32>(first) + vec4<u32>(0u, 1u, 2u, 3u) * p.column_stride;
    let inside = (column < vec4<u32>(p.width)) & vec4<bool>(row < p.height);
    let start = (line / p.rows * p.height + row) * p.width;
    let at = select(vec4<u32>(0u), start + column, inside);
    let v = vec4<f32>(f32(x_at(at.x)), f32(x_at(at.y)), f32(x_at(at.z)), f32(x_at(at.w)));
    y_put(i, y_t4(select(vec4<f32>(0.0), v, inside)));
}
