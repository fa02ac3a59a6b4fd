// Attention of a few queries. Each of eight lanes reads every eighth key of a chunk and has its own running
// softmax. The lanes are merged at the end. A lane uses a key for TOGETHER query heads. attention_merge
// merges the chunks. Needs subgroups of at least eight lanes.
//#trusted
// No key beyond the last visible key is read. The rule has checked that the last visible key is in the cache.
// Loops over a row end at a parameter, so that compilers do not unroll them: software adapters make long code
// of every load.
@group(0) @binding(0) var<storage, read> q: array<vec4<f32>>;            // [B, S, Hq, D] in any order of dimensions
@group(0) @binding(1) var<storage, read> k: array<k_word>;               // [B, T, Hkv, D]
@group(0) @binding(2) var<storage, read> v: array<v_word>;               // [B, T, Hkv, D]
@group(0) @binding(3) var<storage, read_write> parts: array<vec4<f32>>;  // see attention_chunks
@group(0) @binding(4) var<uniform> start_pos: vec4<i32>;
@group(0) @binding(5) var<uniform> p: Params;
//#include attention_segments

//#include attention_params
//#include attention_chunks

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
    var query: array<array<vec4<f32>, QUADS>, TOGETHER>;
    var sum: array<array<vec4<f32>, QUADS>, TOGETHER>;
    var top: array<f32, TOGETHER>;
    var total: array<f32, TOGETHER>;
    var fade: array<f32, TOGETHER>;
    var weight: array<f32, TOGETHER>;
    var partial: array<vec4<f32>, TOGETHER>;
    for (var n = 0u; n < TOGETHER; n++) {
        top[n] = LOWEST;
        total[n] = 0.0;
        for (var d = 0u; d < p.quads; d++) {
            query[n][d] = q[q_first + n * (p.q_head / 4u) + d] * p.scale;
            sum[n][d] = vec4<f32>(0.0);
        }
    }
    for (var t = from_key + lane; t < to_key; t += 8u) {
        let first = k_first + t * (p.k_length / 4u);
        for (var n = 0u; n < TOGETHER; n++) { partial[n] = vec4<f32>(0.0); }
        for (var d = 0u; d < p.quads; d++) {
            let key = k_quad(first + d);
            for (var n = 0u; n < TOGETHER; n++) { partial[n] = fma(query[n][d], key, partial[n]); }
        }
        for (var n = 0u; n < TOGETHER; n++) {
            let score = capped(dot(partial[n], vec4<f32>(1.0)));
            let new_top = max(top[n], score);
            fade[n] = exp(top[n] - new_top);
            weight[n] = exp(score - new_top);
            top[n] = new_top;
            total[n] = total[n] * fade[n] + weight[n];
        }
        for (var d = 0u; d < p.quads; d++) {
            let value = v_quad(first + d);
            for (var n = 0u; n < TOGETHER; n++) {
                sum[n][d] = fma(vec4<f32>(weight[n]), value, sum[n][d] * fade[n]);
            }
        }
    }
    for (var n = 0u; n < TOGETHER; n++) {
        let part = part_of(row_of(b, h + n, place), chunk);
        let highest = subgroupMax(top[n]);
        let share = exp(top[n] - highest);
        let whole = subgroupAdd(total[n] * share);
        if (lane == 0u) { parts[part + QUADS] = vec4<f32>(highest, whole, 0.0, 0.0); }
        for (var d = 0u; d < p.quads; d++) {
            let merged = subgroupAdd(sum[n][d] * share);
            if (d % 8u == lane) { parts[part + d] = merged; }
        }
    }
}
