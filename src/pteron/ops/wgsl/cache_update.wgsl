// cache[b, start_pos + s, ..] = x[b, s, ..]
@group(0) @binding(0) var<storage, read> x: array<x_word>;         // [B, S, width]
@group(0) @binding(1) var<storage, read_write> cache: array<f32>;  // [B, capacity, width]
@group(0) @binding(2) var<uniform> start_pos: vec4<i32>;
@group(0) @binding(3) var<uniform> p: Params;

struct Params { count: u32, row: u32, cache_row: u32, width: u32 }

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.count) { return; }
    cache[(i / p.row) * p.cache_row + u32(start_pos.x) * p.width + i % p.row] = x_at(i);
}
