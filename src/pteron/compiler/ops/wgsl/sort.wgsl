// The indices of the elements of each row in sorted order. The rank of an element is the number of elements
// that come before it. Equal elements keep their order. The rule supplies `before`.
@group(0) @binding(0) var<storage, read> x: array<x_word>;            // [outer, width, inner]
@group(0) @binding(1) var<storage, read_write> order: array<i32>;     // [outer, kept, inner]
@group(0) @binding(2) var<uniform> p: Params;

struct Params { count: u32, width: u32, inner: u32, kept: u32 }

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.count) { return; }
    let mine = x_at(i);
    let place = (i / p.inner) % p.width;
    let outer = i / (p.inner * p.width);
    var rank = 0u;
    var at = outer * p.width * p.inner + i % p.inner;
    for (var k = 0u; k < p.width; k++) {
        let other = x_at(at);
        if (before(other, mine) || (k < place && !before(mine, other))) { rank++; }
        at += p.inner;
    }
    if (rank < p.kept) { order[(outer * p.kept + rank) * p.inner + i % p.inner] = i32(place); }
}
