// cache[b, indices[b, s]] = x[b, s]. The last of several rows with the same index stays.
// WHOLE: rows are whole quads, and one invocation copies one quad of x. Otherwise rows share words, and one
// invocation makes one quad of the cache.
@group(0) @binding(0) var<storage, read> x: array<x_word>;                // [B, S, width]
@group(0) @binding(1) var<storage, read> indices: array<indices_word>;    // [B, S]
@group(0) @binding(2) var<storage, read_write> cache: array<cache_word>;  // [B, capacity, width]
@group(0) @binding(3) var<uniform> p: Params;

struct Params { quads: u32, length: u32, width: u32, capacity: u32 }

fn place(i: u32, old: cache_t) -> cache_t {
    let at = i / p.width;
    let batch = at / p.capacity;
    var found = old;
    for (var s = 0u; s < p.length; s++) {
        let row = batch * p.length + s;
        if (u32(indices_at(row)) == at % p.capacity) { found = cache_t(x_at(row * p.width + i % p.width)); }
    }
    return found;
}

fn is_replaced(row: u32) -> bool {
    let end = (row / p.length + 1u) * p.length;
    for (var later = row + 1u; later < end; later++) {
        if (indices_at(later) == indices_at(row)) { return true; }
    }
    return false;
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.quads) { return; }
    if (WHOLE) {
        let row_quads = p.width / 4u;
        let row = i / row_quads;
        let index = u32(indices_at(row));
        if (index >= p.capacity || is_replaced(row)) { return; }
        cache_put((row / p.length * p.capacity + index) * row_quads + i % row_quads, cache_t4(x_quad(i)));
        return;
    }
    let old = cache_quad(i);
    cache_put(i, cache_t4(place(4u * i, old.x), place(4u * i + 1u, old.y), place(4u * i + 2u, old.z), place(4u * i + 3u, old.w)));
}
