// y = the norm of the difference of each pair of rows of x. The rule supplies `add` and `root`.
@group(0) @binding(0) var<storage, read> x: array<x_word>;        // [rows, width]
@group(0) @binding(1) var<storage, read_write> y: array<y_word>;  // [rows * (rows - 1) / 2]
@group(0) @binding(2) var<uniform> p: Params;

struct Params { quads: u32, rows: u32, width: u32, norm: f32 }

// The number of pairs whose first row is less than `row`.
fn pairs_before(row: u32) -> u32 { return row * (2u * p.rows - row - 1u) / 2u; }

fn distance_at(i: u32) -> y_t {
    // The first row of pair i: the largest row whose pairs begin at i or before i.
    var low = 0u;
    var high = p.rows - 1u;
    while (low + 1u < high) {
        let middle = (low + high) / 2u;
        if (pairs_before(middle) <= i) { low = middle; } else { high = middle; }
    }
    let other = min(low + 1u + i - pairs_before(low), p.rows - 1u);
    var sum = 0.0;
    for (var k = 0u; k < p.width; k++) {
        sum = add(sum, abs(f32(x_at(low * p.width + k)) - f32(x_at(other * p.width + k))));
    }
    return y_t(root(sum));
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.quads) { return; }
    y_put(i, y_t4(distance_at(4u * i), distance_at(4u * i + 1u), distance_at(4u * i + 2u), distance_at(4u * i + 3u)));
}
