// y = indices - first, within 0 and last.
@group(0) @binding(0) var<storage, read> indices: array<indices_word>;  // [n]
@group(0) @binding(1) var<storage, read_write> y: array<y_word>;        // [n]
@group(0) @binding(2) var<uniform> p: Params;

struct Params { quads: u32, first: u32, last: u32 }

fn place(i: u32) -> i32 { return clamp(i32(indices_at(i)) - i32(p.first), 0, i32(p.last)); }

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.quads) { return; }
    y_put(i, y_t4(vec4<i32>(place(4u * i), place(4u * i + 1u), place(4u * i + 2u), place(4u * i + 3u))));
}
