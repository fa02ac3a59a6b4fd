// y[i] = the weights of row indices[i], decoded.
@group(0) @binding(0) var<storage, read> indices: array<indices_word>;  // [n]
@group(0) @binding(1) var<storage, read> weights: array<u32>;           // [rows, row_bytes / 4]
//#include affine_scales
@group(0) @binding(4) var<storage, read_write> y: array<y_word>;        // [n, depth]
@group(0) @binding(5) var<uniform> p: Params;

struct Params {
    quads: u32, rows: u32, depth: u32, row_bytes: u32, group: u32, scale_column: u32, scale_group: u32, zero: f32,
}

//#include affine_element

fn value(i: u32) -> f32 {
    let row = min(u32(indices_at(i / p.depth)), p.rows - 1u);
    let k = i % p.depth;
    let line = line_of(row, k / p.group);
    return code_at(row, k) * line.scale + line.start;
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.quads) { return; }
    y_put(i, y_t4(vec4<f32>(value(4u * i), value(4u * i + 1u), value(4u * i + 2u), value(4u * i + 3u))));
}
