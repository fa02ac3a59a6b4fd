// Attention of a few queries: eight lanes share one query and take every eighth key, each with a running
// softmax of its own; at the end they are merged. Needs subgroups of at least eight lanes.
@group(0) @binding(0) var<storage, read> q: array<vec4<f32>>;        // [B, S, Hq, D] in any order of dimensions
@group(0) @binding(1) var<storage, read> k: array<vec4<f32>>;        // [B, T, Hkv, D]
@group(0) @binding(2) var<storage, read> v: array<vec4<f32>>;        // [B, T, Hkv, D]
@group(0) @binding(3) var<storage, read_write> y: array<vec4<f32>>;  // as q
@group(0) @binding(4) var<uniform> start_pos: vec4<i32>;
@group(0) @binding(5) var<uniform> p: Params;

//#include attention_params

const QUADS = WIDTH / 4u;

@compute @workgroup_size(8)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = flat_group(group, groups);
    if (row >= p.batch * p.heads * p.length) { return; }
    let s = row % p.length;
    let h = (row / p.length) % p.heads;
    let b = row / (p.length * p.heads);
    let q_first = (b * p.q_batch + s * p.q_length + h * p.q_head) / 4u;
    let k_first = (b * p.k_batch + (h / p.sharing) * p.k_head) / 4u;

    var query: array<vec4<f32>, QUADS>;
    var sum: array<vec4<f32>, QUADS>;
    for (var d = 0u; d < QUADS; d++) {
        query[d] = q[q_first + d] * p.scale;
        sum[d] = vec4<f32>(0.0);
    }
    var top = -3.0e38;
    var total = 0.0;
    for (var t = lane; t < visible_keys(s); t += 8u) {
        let first = k_first + t * (p.k_length / 4u);
        var partial = vec4<f32>(0.0);
        for (var d = 0u; d < QUADS; d++) { partial = fma(query[d], k[first + d], partial); }
        let score = dot(partial, vec4<f32>(1.0));
        let new_top = max(top, score);
        let fade = exp(top - new_top);
        let weight = exp(score - new_top);
        top = new_top;
        total = total * fade + weight;
        for (var d = 0u; d < QUADS; d++) { sum[d] = fma(vec4<f32>(weight), v[first + d], sum[d] * fade); }
    }
    let fade = exp(top - subgroupMax(top));
    let whole = 1.0 / subgroupAdd(total * fade);
    for (var d = 0u; d < QUADS; d++) {
        let merged = subgroupAdd(sum[d] * fade) * whole;
        if (d % 8u == lane) { y[q_first + d] = merged; }
    }
}
