// Attention of a few queries, eight keys at a time. For the scores, each of eight lanes has one key, and the
// lanes exchange the quads of q. For the weighted sum, each lane has quads of a row of v, and the lanes exchange
// the weights. TOGETHER query heads use every key and value that is loaded. attention_merge merges the chunks.
// Needs subgroups of at least eight lanes.
//#trusted
// No key beyond the last visible key is read. The rule has checked that the last visible key is in the cache.
// Software adapters make long code of every load, and even longer code of a store to an array at an index that
// is not constant. So arrays have constant indices, and loops with loads have bounds that a compiler cannot
// know. It would unroll a loop with the bound min(8u, n).
@group(0) @binding(0) var<storage, read> q: array<vec4<f32>>;            // [B, S, Hq, D] in any order of dimensions
@group(0) @binding(1) var<storage, read> k: array<k_word>;               // [B, T, Hkv, D]
@group(0) @binding(2) var<storage, read> v: array<v_word>;               // [B, T, Hkv, D]
@group(0) @binding(3) var<storage, read_write> parts: array<vec4<f32>>;  // see attention_chunks
@group(0) @binding(4) var<uniform> start_pos: vec4<i32>;
@group(0) @binding(5) var<uniform> p: Params;
//#include attention_segments

//#include attention_params
//#include attention_chunks
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

    let q_first = (b * p.q_batch + s * p.q_length + h * p.q_head) / 4u;
    let k_first = (caches_of(b, s) * p.k_batch + (h / p.sharing) * p.k_head) / 4u;
    let k_step = p.k_length / 4u;
    // Lane i has quads i, i + 8 and so on.
    var query: array<array<vec4<f32>, TOGETHER>, SHARE>;
    var sum: array<array<vec4<f32>, TOGETHER>, SHARE>;
    var top: array<f32, TOGETHER>;
    var total: array<f32, TOGETHER>;  // the sum of the weights of this lane's keys
//#each n TOGETHER
    top[n] = LOWEST;
//#each c SHARE
    query[c][n] = q[q_first + n * (p.q_head / 4u) + 8u * c + lane] * p.scale;
//#end c
//#end n
    for (var t = from_key; t < to_key; t += 8u) {
        let k_row = k_first + min(t + lane, to_key - 1u) * k_step;
        var products = array<vec4<f32>, TOGETHER>();
        for (var giver = 0u; giver < p.quads / SHARE; giver++) {
//#each c SHARE
            let key = k_quad(k_row + 8u * c + giver);
//#each n TOGETHER
            products[n] = fma(subgroupShuffle(query[c][n], giver), key, products[n]);
//#end n
//#end c
        }
        var weight: array<f32, TOGETHER>;
//#each n TOGETHER
        let score = select(LOWEST, capped(dot(products[n], vec4<f32>(1.0))), t + lane < to_key);
        let new_top = max(top[n], max_of_eight(score));
        let fade = exp(top[n] - new_top);
        weight[n] = exp(score - new_top);
        top[n] = new_top;
        total[n] = total[n] * fade + weight[n];
//#each c SHARE
        sum[c][n] *= fade;
//#end c
//#end n
        let end = min(t + 8u, to_key);
        for (var key = t; key < end; key++) {
            let v_row = k_first + key * k_step;
            var given: array<vec4<f32>, TOGETHER>;
//#each n TOGETHER
            given[n] = vec4<f32>(subgroupShuffle(weight[n], key - t));
//#end n
//#each c SHARE
            let value = v_quad(v_row + 8u * c + lane);
//#each n TOGETHER
            sum[c][n] = fma(given[n], value, sum[c][n]);
//#end n
//#end c
        }
    }
//#each n TOGETHER
    let part = part_of(row_of(b, h + n, place), chunk);
    let whole = sum_of_eight(total[n]);
    if (lane == 0u) { parts[part + QUADS] = vec4<f32>(top[n], whole, 0.0, 0.0); }
//#each c SHARE
    parts[part + 8u * c + lane] = sum[c][n];
//#end c
//#end n
}
