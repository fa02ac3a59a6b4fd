// Attention of many queries on a GPU. A workgroup computes TILE queries of one head, TILE keys at a time,
// with a running softmax. Scores are computed from slices of queries and keys in workgroup memory. A lane
// computes one quad of the result of eight queries. Queries past the end repeat the last query and are not
// stored.
@group(0) @binding(0) var<storage, read_write> y: array<y_word>;  // as q
//#include attention_operands
//#include attention_score
//#include attention_tiles

const QUADS = WIDTH / 4u;
const PITCH = TILE + 1u;                     // the row length of a slice: lanes that fill a row use different banks
const SETS = TILE / 4u;                      // the number of sets; a set is four queries that are SETS apart
const SLOTS = LANES / SETS;                  // the number of lanes per set; they divide the keys
const EACH = (TILE + SLOTS - 1u) / SLOTS;    // the number of keys per lane: every SLOTS-th key

var<workgroup> q_slice: array<vec4<f32>, SLICE * PITCH>;  // [quad][query]
var<workgroup> k_slice: array<vec4<f32>, SLICE * PITCH>;  // [quad][key]
var<workgroup> weights: array<vec4<f32>, TILE * SETS>;    // [key][set], with one component per query of the set
var<workgroup> found: array<vec4<f32>, LANES>;            // the highest scores of each lane's set
var<workgroup> fades: array<vec4<f32>, SETS>;

@compute @workgroup_size(LANES)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let per_head = (p.length + TILE - 1u) / TILE;
    let block = flat_group(group, groups);
    if (block >= per_head * p.heads * p.batch) { return; }
    let h = (block / per_head) % p.heads;
    let b = block / (per_head * p.heads);
    let tile = tile_at(b);
    let first_query = tile.x + (block % per_head) * TILE;
    let last_query = tile.x + tile.y - 1u;
    let q_first = (b * p.q_batch + h * p.q_head) / 4u;
    let k_first = (caches_of(b, tile.x) * p.k_batch + (h / p.sharing) * p.k_head) / 4u;
    let q_step = p.q_length / 4u;
    let k_step = p.k_length / 4u;

    // For the scores, this lane has four queries and some of the keys.
    let own = lane % SETS;
    let slot = lane / SETS;
    let queries = min(vec4<u32>(first_query + own) + SETS * vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(last_query));
    // For the result, this lane has one quad of the queries of two sets.
    let d = lane % QUADS;
    let pair = lane / QUADS;

    var top = vec4<f32>(LOWEST);
    var total = vec4<f32>(0.0);  // the sum of the weights of this lane's keys
    var sums: array<vec4<f32>, 8>;
    for (var r = 0u; r < 8u; r++) { sums[r] = vec4<f32>(0.0); }
    // The last query of the tile sees the most keys. Later keys are not read.
    let keys = visible_keys(min(first_query + TILE - 1u, last_query));
    for (var t = first_key(first_query); t < keys; t += TILE) {
        var scores: array<vec4<f32>, EACH>;
        for (var j = 0u; j < EACH; j++) { scores[j] = vec4<f32>(0.0); }
        for (var start = 0u; start < QUADS; start += SLICE) {
            workgroupBarrier();  // all lanes have read the previous slice
            for (var n = lane; n < TILE * SLICE; n += LANES) {
                let c = n % SLICE;
                let place = n / SLICE;
                var from_q = vec4<f32>(0.0);
                var from_k = vec4<f32>(0.0);
                if (start + c < QUADS) {
                    from_q = vec4<f32>(q_quad(q_first + min(first_query + place, last_query) * q_step + start + c));
                    from_k = vec4<f32>(k_quad(k_first + min(t + place, keys - 1u) * k_step + start + c));
                }
                q_slice[c * PITCH + place] = from_q;
                k_slice[c * PITCH + place] = from_k;
            }
            workgroupBarrier();
            for (var c = 0u; c < SLICE; c++) {
                let q0 = q_slice[c * PITCH + own];
                let q1 = q_slice[c * PITCH + own + 1u * SETS];
                let q2 = q_slice[c * PITCH + own + 2u * SETS];
                let q3 = q_slice[c * PITCH + own + 3u * SETS];
                for (var j = 0u; j < EACH; j++) {
                    let key = k_slice[c * PITCH + min(slot + j * SLOTS, TILE - 1u)];
                    scores[j] += vec4<f32>(dot(q0, key), dot(q1, key), dot(q2, key), dot(q3, key));
                }
            }
        }

        var new_top = top;
        for (var j = 0u; j < EACH; j++) {
            let place = slot + j * SLOTS;
            for (var r = 0u; r < 4u; r++) {
                scores[j][r] = masked_score(scores[j][r] * p.scale, b, h, queries[r], t + place);
            }
            if (place < TILE) { new_top = max(new_top, scores[j]); }
        }
        found[lane] = new_top;
        workgroupBarrier();
        for (var n = 0u; n < SLOTS; n++) { new_top = max(new_top, found[n * SETS + own]); }
        let fade = exp(top - new_top);
        top = new_top;
        total *= fade;
        if (slot == 0u) { fades[own] = fade; }
        for (var j = 0u; j < EACH; j++) {
            let place = slot + j * SLOTS;
            if (place < TILE) {
                let weight = select(exp(scores[j] - top), vec4<f32>(0.0), scores[j] == vec4<f32>(LOWEST));
                total += weight;
                weights[place * SETS + own] = weight;
            }
        }
        workgroupBarrier();
        if (pair < 4u) {
            let fade_0 = fades[2u * pair];
            let fade_1 = fades[2u * pair + 1u];
            for (var r = 0u; r < 4u; r++) {
                sums[r] *= fade_0[r];
                sums[r + 4u] *= fade_1[r];
            }
            for (var n = 0u; n < min(TILE, keys - t); n++) {
                let value = vec4<f32>(v_quad(k_first + (t + n) * k_step + d));
                let weight_0 = weights[n * SETS + 2u * pair];
                let weight_1 = weights[n * SETS + 2u * pair + 1u];
                for (var r = 0u; r < 4u; r++) {
                    sums[r] = fma(vec4<f32>(weight_0[r]), value, sums[r]);
                    sums[r + 4u] = fma(vec4<f32>(weight_1[r]), value, sums[r + 4u]);
                }
            }
        }
    }

    found[lane] = total;
    workgroupBarrier();
    if (pair >= 4u) { return; }
    for (var one = 0u; one < 2u; one++) {
        var whole = vec4<f32>(0.0);
        for (var n = 0u; n < SLOTS; n++) { whole += found[n * SETS + 2u * pair + one]; }
        for (var r = 0u; r < 4u; r++) {
            let s = first_query + 2u * pair + one + SETS * r;
            let at = q_first + s * q_step + d;
            if (s <= last_query) { y_put(at, y_t4(divided(sums[4u * one + r], whole[r]))); }
        }
    }
}
