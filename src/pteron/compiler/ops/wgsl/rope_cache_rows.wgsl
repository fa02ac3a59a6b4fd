// Rotary embedding of k into the key caches of several sequences. v is copied to the value caches. One
// invocation computes one quad of k and copies the same quad of v.
@group(0) @binding(0) var<storage, read> k: array<k_word>;                            // [S, Hkv, D]
@group(0) @binding(1) var<storage, read> v: array<v_word>;                            // [S, Hkv, D]
@group(0) @binding(2) var<storage, read> cos_table: array<cos_table_word>;            // [positions, table]
@group(0) @binding(3) var<storage, read> sin_table: array<sin_table_word>;            // [positions, table]
@group(0) @binding(4) var<storage, read_write> key_cache: array<key_cache_word>;      // [slots, capacity, Hkv, D]
@group(0) @binding(5) var<storage, read_write> value_cache: array<value_cache_word>;  // [slots, capacity, Hkv, D]
@group(0) @binding(6) var<storage, read> slots: array<i32>;                           // [S]
@group(0) @binding(7) var<storage, read> positions: array<i32>;                       // [S]
@group(0) @binding(8) var<uniform> p: Params;

struct Params { quads: u32, heads: u32, width: u32, capacity: u32, table: u32, rotated: u32 }

fn source_at(which: u32, i: u32) -> f32 { return f32(k_at(i)); }
fn source_quad(which: u32, i: u32) -> vec4<f32> { return vec4<f32>(k_quad(i)); }

// The tables have a row for each position, or with GATHERED, a row for each row of k.
fn row_of(i: u32, heads: u32) -> u32 {
    let row = i / (p.width * heads);
    if (GATHERED) { return row; }
    return u32(positions[row]);
}

//#include rope

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.quads) { return; }
    let token = p.heads * p.width / 4u;
    let row = i / token;
    let place = (u32(slots[row]) * p.capacity + u32(positions[row])) * token + i % token;
    key_cache_put(place, key_cache_t4(rotated_quad(0u, i, p.heads)));
    value_cache_put(place, value_cache_t4(v_quad(i)));
}
