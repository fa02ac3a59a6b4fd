// y = (x - zero point) * scale, with one of both for each row. Rows at positions that no query sees are left
// out: those after the last token of this call, if FROM_POSITION.
@group(0) @binding(0) var<storage, read> x: array<x_word>;            // [rows, width]
@group(0) @binding(1) var<storage, read> scales: array<scales_word>;  // [rows]
@group(0) @binding(2) var<storage, read> zeros: array<zeros_word>;    // [rows]
@group(0) @binding(3) var<storage, read_write> y: array<y_word>;      // as x
@group(0) @binding(4) var<uniform> start_pos: vec4<i32>;
@group(0) @binding(5) var<uniform> p: Params;

// The position of an element is (its index / inner) % capacity.
struct Params { quads: u32, width: u32, inner: u32, capacity: u32, length: u32 }

fn is_seen(i: u32) -> bool {
    return !FROM_POSITION || (i / p.inner) % p.capacity < u32(start_pos.x) + p.length;
}

fn value(i: u32) -> f32 {
    let row = i / p.width;
    return (f32(x_at(i)) - f32(zeros_at(row))) * f32(scales_at(row));
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.quads) { return; }
    let e = 4u * i;
    if (!(is_seen(e) || is_seen(e + 1u) || is_seen(e + 2u) || is_seen(e + 3u))) { return; }
    y_put(i, vec4<f32>(value(e), value(e + 1u), value(e + 2u), value(e + 3u)));
}
