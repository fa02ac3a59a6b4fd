// cache[b, start_pos + s, ..] = x[b, s, ..]. One invocation writes one quad of the cache. A quad at the edge
// keeps its other elements. If a quad has elements of two batches, the invocation of the first batch writes
// it.
@group(0) @binding(0) var<storage, read> x: array<x_word>;                // [B, S, width]
@group(0) @binding(1) var<storage, read_write> cache: array<cache_word>;  // [B, capacity, width]
@group(0) @binding(2) var<uniform> start_pos: vec4<i32>;
@group(0) @binding(3) var<uniform> p: Params;

struct Params { batch: u32, quads: u32, row: u32, cache_row: u32, width: u32 }

fn place(i: u32, old: cache_t) -> cache_t {
    let within = i % p.cache_row - u32(start_pos.x) * p.width;  // before the start this wraps to a huge number
    if (within >= p.row || i >= p.batch * p.cache_row) { return old; }
    return cache_t(x_at((i / p.cache_row) * p.row + within));
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let n = flat_index(id, groups);
    if (n >= p.batch * p.quads) { return; }
    let b = n / p.quads;
    let first = b * p.cache_row + u32(start_pos.x) * p.width;  // the first element to write, in this batch
    let i = first / 4u + n % p.quads;
    if (4u * i >= first + p.row) { return; }
    if (b > 0u && i <= (first - p.cache_row + p.row - 1u) / 4u) { return; }
    if (first % 4u == 0u && p.row % 4u == 0u) {
        cache_put(i, cache_t4(x_quad(b * (p.row / 4u) + n % p.quads)));
        return;
    }
    let old = cache_quad(i);
    cache_put(i, cache_t4(place(4u * i, old.x), place(4u * i + 1u, old.y), place(4u * i + 2u, old.z), place(4u * i + 3u, old.w)));
}
