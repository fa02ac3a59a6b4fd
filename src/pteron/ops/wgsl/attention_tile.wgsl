// Attention of many queries: a subgroup takes queries of one head, one per lane, and walks the keys with a
// running softmax. Eight lanes load a key's row between them and hand it round. Queries past the end repeat
// the last one, so that lanes stay in step. Needs subgroups of at least eight lanes.
//#trusted
// Queries are clamped to the last one, and no key is read beyond the last visible one, which the rule has
// checked to lie in the cache.
@group(0) @binding(0) var<storage, read> q: array<vec4<f32>>;        // [B, S, Hq, D] in any order of dimensions
@group(0) @binding(1) var<storage, read> k: array<vec4<f32>>;        // [B, T, Hkv, D]
@group(0) @binding(2) var<storage, read> v: array<vec4<f32>>;        // [B, T, Hkv, D]
@group(0) @binding(3) var<storage, read_write> y: array<vec4<f32>>;  // as q
@group(0) @binding(4) var<uniform> start_pos: vec4<i32>;
@group(0) @binding(5) var<uniform> p: Params;

//#include attention_params

const QUADS = WIDTH / 4u;
const SHARE = WIDTH / 32u;  // quads of a row that each of eight lanes loads

fn from_lane(x: vec4<f32>, lane: u32) -> vec4<f32> {
    return vec4<f32>(
        subgroupShuffle(x.x, lane), subgroupShuffle(x.y, lane), subgroupShuffle(x.z, lane), subgroupShuffle(x.w, lane),
    );
}

@compute @workgroup_size(LANES)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
    @builtin(subgroup_invocation_id) member: u32,
) {
    let tiles = (p.length + LANES - 1u) / LANES;
    let block = flat_group(group, groups);
    if (block >= tiles * p.heads * p.batch) { return; }
    let h = (block / tiles) % p.heads;
    let b = block / (tiles * p.heads);
    let s = (block % tiles) * LANES + lane;
    let at = min(s, p.length - 1u);
    let q_first = (b * p.q_batch + at * p.q_length + h * p.q_head) / 4u;
    let k_first = (b * p.k_batch + (h / p.sharing) * p.k_head) / 4u + (member & 7u);

    var query: array<vec4<f32>, QUADS>;
    var sum: array<vec4<f32>, QUADS>;
    for (var d = 0u; d < QUADS; d++) {
        query[d] = q[q_first + d] * p.scale;
        sum[d] = vec4<f32>(0.0);
    }
    let keys = visible_keys(at);
    // Of the block's last query, which sees the most: a bound that is plainly the same for all lanes.
    let last = visible_keys(min((block % tiles) * LANES + LANES - 1u, p.length - 1u));
    var top = -3.0e38;
    var total = 0.0;
    for (var t = 0u; t < last; t++) {
        let first = k_first + t * (p.k_length / 4u);
        var partial = vec4<f32>(0.0);
        for (var c = 0u; c < SHARE; c++) {
            let mine = k[first + 8u * c];
            for (var m = 0u; m < 8u; m++) { partial = fma(query[8u * c + m], from_lane(mine, m), partial); }
        }
        let score = dot(partial, vec4<f32>(1.0));
        let new_top = select(top, max(top, score), t < keys);
        let fade = exp(top - new_top);
        let weight = select(0.0, exp(score - new_top), t < keys);
        top = new_top;
        total = total * fade + weight;
        for (var c = 0u; c < SHARE; c++) {
            let mine = v[first + 8u * c];
            for (var m = 0u; m < 8u; m++) {
                let d = 8u * c + m;
                sum[d] = fma(vec4<f32>(weight), from_lane(mine, m), sum[d] * fade);
            }
        }
    }
    if (s >= p.length) { return; }
    for (var d = 0u; d < QUADS; d++) { y[q_first + d] = sum[d] / total; }
}
