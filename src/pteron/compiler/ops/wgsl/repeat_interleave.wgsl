// y[k] = the first i for which the sum of repeats[0] .. repeats[i] is greater than k.
@group(0) @binding(0) var<storage, read> ends: array<i32>;        // [count]: where the repeats of each number end
@group(0) @binding(1) var<storage, read_write> y: array<y_word>;  // [ends[count - 1]]
@group(0) @binding(2) var<uniform> p: Params;

struct Params { quads: u32, count: u32 }

fn number(k: u32) -> y_t {
    var low = 0u;
    var high = p.count - 1u;
    while (low < high) {
        let middle = (low + high) / 2u;
        if (u32(ends[middle]) > k) { high = middle; } else { low = middle + 1u; }
    }
    return y_t(low);
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.quads) { return; }
    y_put(i, y_t4(number(4u * i), number(4u * i + 1u), number(4u * i + 2u), number(4u * i + 3u)));
}
