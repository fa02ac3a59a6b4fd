// y = a * sigmoid(b), where a and b are the halves of a dimension of x.
@group(0) @binding(0) var<storage, read> x: array<x_word>;        // [outer, 2, half]
@group(0) @binding(1) var<storage, read_write> y: array<y_word>;  // [outer, half]
@group(0) @binding(2) var<uniform> p: Params;

struct Params { quads: u32, half: u32 }

fn place(i: u32) -> u32 { return i / p.half * 2u * p.half + i % p.half; }

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.quads) { return; }
    let at = vec4<u32>(place(4u * i), place(4u * i + 1u), place(4u * i + 2u), place(4u * i + 3u));
    let a = vec4<f32>(f32(x_at(at.x)), f32(x_at(at.y)), f32(x_at(at.z)), f32(x_at(at.w)));
    let far = at + vec4<u32>(p.half);
    let b = vec4<f32>(f32(x_at(far.x)), f32(x_at(far.y)), f32(x_at(far.z)), f32(x_at(far.w)));
    y_put(i, y_t4(a * sigmoid4(b)));
}
