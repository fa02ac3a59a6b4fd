// y = the place of each element of x among the boundaries, which are sorted. NaN is after all of them. The rule
// supplies `is_beyond`.
@group(0) @binding(0) var<storage, read> x: array<x_word>;                    // of any shape
@group(0) @binding(1) var<storage, read> boundaries: array<boundaries_word>;  // [count]
@group(0) @binding(2) var<storage, read_write> y: array<y_word>;              // as x
@group(0) @binding(3) var<uniform> p: Params;

struct Params { quads: u32, count: u32 }

fn place(i: u32) -> y_t {
    let element = x_at(i);
    var low = 0u;
    var high = p.count;
    while (low < high) {
        let middle = (low + high) / 2u;
        if (is_beyond(boundaries_at(middle), element)) { high = middle; } else { low = middle + 1u; }
    }
    return y_t(low);
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.quads) { return; }
    y_put(i, y_t4(place(4u * i), place(4u * i + 1u), place(4u * i + 2u), place(4u * i + 3u)));
}
