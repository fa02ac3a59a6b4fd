// Attention of a few queries, eight keys of a chunk at a time. For the scores, each of eight lanes has a key, and
// the lanes exchange the query. For the sums, each lane has eight elements of every value, or SHARE times eight of
// long heads, and the lanes exchange the weights. Keys and values are used for TOGETHER query heads.
// attention_merge merges the chunks. Needs subgroups of at least eight lanes.
//#trusted
// No key beyond the last visible key is read. The rule has checked that the last visible key is in the cache.
@group(0) @binding(0) var<storage, read> q: array<vec4<f32>>;            // [B, S, Hq, D] in any order of dimensions
//#if HALF_CACHE
@group(0) @binding(1) var<storage, read> k: array<four_t>;               // [B, T, Hkv, D / 8]
@group(0) @binding(2) var<storage, read> v: array<four_t>;               // [B, T, Hkv, D / 8]
//#else
@group(0) @binding(1) var<storage, read> k: array<k_word>;               // [B, T, Hkv, D]
@group(0) @binding(2) var<storage, read> v: array<v_word>;               // [B, T, Hkv, D]
//#end
@group(0) @binding(3) var<storage, read_write> parts: array<vec4<f32>>;  // see attention_chunks
@group(0) @binding(4) var<uniform> start_pos: vec4<i32>;
@group(0) @binding(5) var<uniform> p: Params;
//#include attention_segments

//#include attention_params
//#include attention_chunks
//#include attention_eights
//#include eight_lanes

@compute @workgroup_size(8)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = flat_group(group, groups);
    let sets = p.heads / TOGETHER;
    if (i >= p.batch * sets * p.length * p.chunks) { return; }
    let chunk = i % p.chunks;
    let place = (i / p.chunks) % p.length;
    let s = query_at(place);
    let h = (i / (p.chunks * p.length)) % sets * TOGETHER;
    let b = i / (p.chunks * p.length * sets);
    let from_key = first_key(s) + chunk * chunk_length(s);
    let to_key = min(from_key + chunk_length(s), visible_keys(s));
    if (from_key >= to_key) { return; }

    // Positions in units of eight elements. Lane i has the eights i, i + 8 and so on of a query.
    let q_first = (b * p.q_batch + s * p.q_length + h * p.q_head) / 8u;
    let k_first = (caches_of(b, s) * p.k_batch + (h / p.sharing) * p.k_head) / 8u;
    let k_step = p.k_length / 8u;
    let last_key = to_key - 1u;
    var query_a: array<array<vec4<f32>, TOGETHER>, SHARE>;
    var query_b: array<array<vec4<f32>, TOGETHER>, SHARE>;
    var sum_a = array<array<vec4<f32>, TOGETHER>, SHARE>();
    var sum_b = array<array<vec4<f32>, TOGETHER>, SHARE>();
    var top: array<f32, TOGETHER>;
    var total = array<f32, TOGETHER>();  // the sum of the weights of this lane's keys
//#each n TOGETHER
    top[n] = LOWEST;
//#each c SHARE
    let at = 2u * (q_first + n * (p.q_head / 8u) + min(8u * c + lane, EIGHTS - 1u));
    query_a[c][n] = q[at] * p.scale;
    query_b[c][n] = q[at + 1u] * p.scale;
//#end c
//#end n
    for (var t = from_key; t < to_key; t += 8u) {
        let k_at = k_first + min(t + lane, last_key) * k_step;
        var products = array<vec4<f32>, TOGETHER>();
//#each e EIGHTS
        let key = k_eight(k_at + e);
//#each n TOGETHER
        products[n] += subgroupBroadcast(query_a[e / 8u][n], e % 8u) * key.a;
        products[n] += subgroupBroadcast(query_b[e / 8u][n], e % 8u) * key.b;
//#end n
//#end e
        var weight: array<f32, TOGETHER>;
//#each n TOGETHER
        let score = select(LOWEST, capped(dot(products[n], vec4<f32>(1.0))), t + lane < to_key);
        let new_top = max(top[n], max_of_eight(score));
        let fade = exp(top[n] - new_top);
        weight[n] = exp(score - new_top);
        top[n] = new_top;
        total[n] = total[n] * fade + weight[n];
//#each c SHARE
        sum_a[c][n] *= fade;
        sum_b[c][n] *= fade;
//#end c
//#end n
//#each j 8
        let v_at = k_first + min(t + j, last_key) * k_step;
//#each c SHARE
        let value = v_eight(v_at + min(8u * c + lane, EIGHTS - 1u));
//#each n TOGETHER
        let w = subgroupBroadcast(weight[n], j);
        sum_a[c][n] += w * value.a;
        sum_b[c][n] += w * value.b;
//#end n
//#end c
//#end j
    }
//#each n TOGETHER
    let part = part_of(row_of(b, h + n, place), chunk);
    let whole = sum_of_eight(total[n]);
    if (lane == 0u) { parts[part + QUADS] = vec4<f32>(top[n], whole, 0.0, 0.0); }
//#each c SHARE
    if (8u * c + lane < EIGHTS) {
        parts[part + 2u * (8u * c + lane)] = sum_a[c][n];
        parts[part + 2u * (8u * c + lane) + 1u] = sum_b[c][n];
    }
//#end c
//#end n
}
