// Rotary embedding of q and k. The rotated k is written to the key cache, and v is copied to the value cache.
// One invocation computes one quad of q, or one quad of k and the same quad of v.
@group(0) @binding(0) var<storage, read> q: array<q_word>;                        // [B, S, Hq, D]
@group(0) @binding(1) var<storage, read> k: array<k_word>;                        // [B, S, Hkv, D]
@group(0) @binding(2) var<storage, read> v: array<v_word>;                        // [B, S, Hkv, D]
@group(0) @binding(3) var<storage, read> cos_table: array<cos_table_word>;        // [positions, table]
@group(0) @binding(4) var<storage, read> sin_table: array<sin_table_word>;        // [positions, table]
@group(0) @binding(5) var<storage, read_write> y: array<y_word>;                  // as q
@group(0) @binding(6) var<storage, read_write> key_cache: array<key_cache_word>;  // [B, capacity, Hkv, D]
@group(0) @binding(7) var<storage, read_write> value_cache: array<value_cache_word>;  // [B, capacity, Hkv, D]
@group(0) @binding(8) var<uniform> start: vec4<i32>;      // the table row of the first token
@group(0) @binding(9) var<uniform> start_pos: vec4<i32>;  // the position of the first token in the caches
@group(0) @binding(10) var<uniform> p: Params;

struct Params {
    q_quads: u32, k_quads: u32, q_heads: u32, k_heads: u32,
    width: u32, length: u32, capacity: u32, table: u32, rotated: u32,
}

fn source_at(which: u32, i: u32) -> f32 {
    if (which == 0u) { return f32(q_at(i)); }
    return f32(k_at(i));
}
fn source_quad(which: u32, i: u32) -> vec4<f32> {
    if (which == 0u) { return vec4<f32>(q_quad(i)); }
    return vec4<f32>(k_quad(i));
}

fn row_of(i: u32, heads: u32) -> u32 { return u32(start.x) + i / (p.width * heads) % p.length; }

//#include rope

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    // q and k share the code of the rotation: every load in the text takes long to compile for a software adapter.
    let n = flat_index(id, groups);
    if (n >= p.q_quads + p.k_quads) { return; }
    let which = u32(n >= p.q_quads);
    let i = n - which * p.q_quads;
    let turned = rotated_quad(which, i, select(p.q_heads, p.k_heads, which == 1u));
    if (which == 0u) {
        y_put(i, y_t4(turned));
        return;
    }
    let token = p.k_heads * p.width / 4u;
    let b = i / (token * p.length);
    let place = (b * p.capacity + u32(start_pos.x)) * token + i % (token * p.length);
    key_cache_put(place, key_cache_t4(turned));
    value_cache_put(place, value_cache_t4(v_quad(i)));
}
