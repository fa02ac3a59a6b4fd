// Copy x to a slice of y: the elements of y whose index along one dimension is start + k * step, for k <
// length. One invocation writes one quad of y, and keeps the elements that are not in the slice.
@group(0) @binding(0) var<storage, read> x: array<x_word>;        // [outer, length, inner]
@group(0) @binding(1) var<storage, read_write> y: array<y_word>;  // [outer, total, inner]
@group(0) @binding(2) var<uniform> p: Params;

struct Params { first: u32, quads: u32, inner: u32, length: u32, total: u32, start: u32, step: u32 }

fn place(i: u32, old: y_t) -> y_t {
    let along = (i / p.inner) % p.total - p.start;  // before the start this wraps to a huge number
    if (along >= p.length * p.step || along % p.step != 0u) { return old; }
    let outer = i / (p.inner * p.total);
    return y_t(x_at((outer * p.length + along / p.step) * p.inner + i % p.inner));
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let n = flat_index(id, groups);
    if (n >= p.quads) { return; }
    let i = p.first + n;
    let old = y_quad(i);
    y_put(i, y_t4(place(4u * i, old[0]), place(4u * i + 1u, old[1]), place(4u * i + 2u, old[2]), place(4u * i + 3u, old[3])));
}
