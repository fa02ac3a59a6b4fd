// Attention of a few queries on a GPU. A workgroup computes one query of one head over one chunk of the keys.
// attention_merge merges the chunks. Neighbouring lanes read neighbouring quads of the keys and of the
// values.
@group(0) @binding(0) var<storage, read_write> parts: array<vec4<f32>>;  // see attention_chunks
//#include attention_operands
//#include attention_score
//#include attention_chunks

const LANES = 64u;
const PITCH = QUADS + 1u;      // row length: lanes that sum one key each use different banks
const TEAMS = LANES / QUADS;   // the number of teams; the lanes of a team read every TEAMS-th row of the values

var<workgroup> query: array<vec4<f32>, QUADS>;
var<workgroup> products: array<f32, STEP * PITCH>;  // the products of quads of the query and of a key
var<workgroup> scores: array<f32, STEP>;
var<workgroup> weights: array<f32, STEP>;
var<workgroup> sums: array<vec4<f32>, LANES>;

@compute @workgroup_size(LANES)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = flat_group(group, groups);
    if (i >= p.batch * p.heads * p.length * p.chunks) { return; }
    // Workgroups whose queries read the same keys are neighbours, so the GPU's cache has these keys.
    let together = p.sharing * p.length;
    let member = i % together;
    let chunk = (i / together) % p.chunks;
    let key_heads = p.heads / p.sharing;
    let key_head = (i / (together * p.chunks)) % key_heads;
    let b = i / (together * p.chunks * key_heads);
    let h = key_head * p.sharing + member / p.length;
    let place = member % p.length;
    let s = query_at(place);
    let from_key = first_key(s) + chunk * chunk_length(s);
    let to_key = min(from_key + chunk_length(s), visible_keys(s));
    if (from_key >= to_key) { return; }

    let q_first = (b * p.q_batch + s * p.q_length + h * p.q_head) / 4u;
    let k_first = (caches_of(b, s) * p.k_batch + key_head * p.k_head) / 4u;
    if (lane < QUADS) { query[lane] = vec4<f32>(q_quad(q_first + lane)) * p.scale; }
    workgroupBarrier();

    var top = LOWEST;
    var total = 0.0;  // the sum of the weights of this lane's keys
    var sum = vec4<f32>(0.0);
    let steps = (to_key - from_key + STEP - 1u) / STEP;
    for (var step = 0u; step < steps; step++) {
        let t = from_key + step * STEP;
        for (var turn = 0u; turn < (STEP * QUADS + LANES - 1u) / LANES; turn++) {
            let n = lane + turn * LANES;
            let key = min(t + n / QUADS, to_key - 1u);
            let d = n % QUADS;
            let product = dot(query[d], vec4<f32>(k_quad(k_first + key * (p.k_length / 4u) + d)));
            if (STEP * QUADS % LANES == 0u || n < STEP * QUADS) { products[(n / QUADS) * PITCH + d] = product; }
        }
        workgroupBarrier();
        var score = LOWEST;
        if (lane < STEP && t + lane < to_key) {
            var product = 0.0;
            for (var d = 0u; d < QUADS; d++) { product += products[lane * PITCH + d]; }
            score = masked_score(product, b, h, s, t + lane);
        }
        if (lane < STEP) { scores[lane] = score; }
        workgroupBarrier();
        var new_top = top;
        for (var n = 0u; n < STEP; n++) { new_top = max(new_top, scores[n]); }
        let fade = exp(top - new_top);
        let weight = softmax_weight(score, new_top);
        top = new_top;
        total = total * fade + weight;
        if (lane < STEP) { weights[lane] = weight; }
        workgroupBarrier();
        sum *= fade;
        if (lane < TEAMS * QUADS) {
            let first = k_first + t * (p.k_length / 4u) + lane % QUADS;
            // Keys past the end have no weight. The last key stands for them.
            for (var turn = 0u; turn < (STEP + TEAMS - 1u) / TEAMS; turn++) {
                let n = lane / QUADS + turn * TEAMS;
                let weight = select(0.0, weights[min(n, STEP - 1u)], n < STEP);
                let key = min(n, to_key - t - 1u);
                sum = fma(vec4<f32>(weight), vec4<f32>(v_quad(first + key * (p.k_length / 4u))), sum);
            }
        }
    }

    sums[lane] = sum;
    if (lane < STEP) { scores[lane] = total; }
    workgroupBarrier();
    let part = part_of(row_of(b, h, place), chunk);
    if (lane < QUADS) {
        for (var team = 1u; team < TEAMS; team++) { sum += sums[team * QUADS + lane]; }
        parts[part + lane] = sum;
    }
    if (lane == 0u) {
        for (var n = 1u; n < STEP; n++) { total += scores[n]; }
        parts[part + QUADS] = vec4<f32>(top, total, 0.0, 0.0);
    }
}
