// Rotary embedding of neighbouring pairs. The frequencies are (cos, sin) pairs.
@group(0) @binding(0) var<storage, read> x: array<x_word>;          // [B, N, C]
@group(0) @binding(1) var<storage, read> freqs: array<freqs_word>;  // [N, C]
@group(0) @binding(2) var<storage, read_write> y: array<y_word>;    // [B, N, C]
@group(0) @binding(3) var<uniform> p: Params;

struct Params { quads: u32, row: u32 }

fn rotated(i: u32) -> vec2<f32> {
    let turn = vec2<f32>(f32(freqs_at(i % p.row)), f32(freqs_at(i % p.row + 1u)));
    let v = vec2<f32>(f32(x_at(i)), f32(x_at(i + 1u)));
    return vec2<f32>(v.x * turn.x - v.y * turn.y, v.x * turn.y + v.y * turn.x);
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.quads) { return; }
    y_put(i, y_t4(vec4<f32>(rotated(4u * i), rotated(4u * i + 2u))));
}
