// Rows of x by their indices. Rows of y after the last valid index are never read, so they may contain
// anything.
@group(0) @binding(0) var<storage, read> x: array<x_word>;        // [count, row]
@group(0) @binding(1) var<storage, read> places: array<i32>;      // [count]
@group(0) @binding(2) var<storage, read_write> y: array<y_word>;  // [count, row]
@group(0) @binding(3) var<uniform> p: Params;

struct Params { quads: u32, row: u32, count: u32 }

fn value(i: u32) -> y_t {
    let place = min(u32(places[min(i / p.row, p.count - 1u)]), p.count - 1u);
    return y_t(x_at(place * p.row + i % p.row));
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.quads) { return; }
    y_put(i, y_t4(value(4u * i), value(4u * i + 1u), value(4u * i + 2u), value(4u * i + 3u)));
}
