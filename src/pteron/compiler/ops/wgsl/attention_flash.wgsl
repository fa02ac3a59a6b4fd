// Attention of many queries on a GPU. A workgroup computes TILE queries of one head, KEYS keys at a time,
// with a running softmax. Scores are computed from slices of queries and keys in workgroup memory. A lane
// computes one quad of the result of a quarter of the queries. Queries past the end repeat the last query and are not
// stored.
@group(0) @binding(0) var<storage, read_write> y: array<y_word>;  // as q
//#include attention_operands
//#include attention_score
//#include attention_tiles

const QUADS = WIDTH / 4u;
const KEYS = 32u;
const Q_PITCH = TILE + 1u;                   // the row length of a slice: lanes that fill a row use different banks
const K_PITCH = KEYS + 1u;
const SETS = TILE / 4u;                      // the number of sets; a set is four queries that are SETS apart
const SLOTS = LANES / SETS;                  // the number of lanes per set; they divide the keys
const EACH = (KEYS + SLOTS - 1u) / SLOTS;    // the number of keys per lane: every SLOTS-th key
const OWN = SETS / 4u;                       // the number of sets whose results a lane computes

var<workgroup> q_slice: array<vec4<f32>, SLICE * Q_PITCH>;  // [quad][query]
var<workgroup> k_slice: array<vec4<f32>, SLICE * K_PITCH>;  // [quad][key]
var<workgroup> weights: array<vec4<f32>, KEYS * SETS>;      // [key][set], with one component per query of the set
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
    // For the result, this lane has one quad of the queries of OWN sets.
    let d = lane % QUADS;
    let part = lane / QUADS;

    var top = vec4<f32>(LOWEST);
    var total = vec4<f32>(0.0);  // the sum of the weights of this lane's keys
    var sums: array<vec4<f32>, 4u * OWN>;
    // The last query of the tile sees the most keys. Later keys are not read.
    let keys = visible_keys(min(first_query + TILE - 1u, last_query));
    let from_key = first_key(first_query);
    for (var step = 0u; step < (keys - from_key + KEYS - 1u) / KEYS; step++) {
        let t = from_key + step * KEYS;
        var scores: array<vec4<f32>, EACH>;
        for (var j = 0u; j < EACH; j++) { scores[j] = vec4<f32>(0.0); }
        for (var start = 0u; start < QUADS; start += SLICE) {
            workgroupBarrier();  // all lanes have read the previous slice
            for (var turn = 0u; turn < (TILE * SLICE + LANES - 1u) / LANES; turn++) {
                let n = lane + turn * LANES;
                let c = n % SLICE;
                let query = min(first_query + n / SLICE, last_query);
                let quad = vec4<f32>(q_quad(q_first + query * q_step + min(start + c, QUADS - 1u)));
                if (TILE * SLICE % LANES == 0u || n < TILE * SLICE) {
                    q_slice[c * Q_PITCH + n / SLICE] = select(vec4<f32>(0.0), quad, start + c < QUADS);
                }
            }
            for (var turn = 0u; turn < (KEYS * SLICE + LANES - 1u) / LANES; turn++) {
                let n = lane + turn * LANES;
                let c = n % SLICE;
                let key = min(t + n / SLICE, keys - 1u);
                let quad = vec4<f32>(k_quad(k_first + key * k_step + min(start + c, QUADS - 1u)));
                if (KEYS * SLICE % LANES == 0u || n < KEYS * SLICE) {
                    k_slice[c * K_PITCH + n / SLICE] = select(vec4<f32>(0.0), quad, start + c < QUADS);
                }
            }
            workgroupBarrier();
            for (var c = 0u; c < SLICE; c++) {
                let q0 = q_slice[c * Q_PITCH + own];
                let q1 = q_slice[c * Q_PITCH + own + 1u * SETS];
                let q2 = q_slice[c * Q_PITCH + own + 2u * SETS];
                let q3 = q_slice[c * Q_PITCH + own + 3u * SETS];
                for (var j = 0u; j < EACH; j++) {
                    let key = k_slice[c * K_PITCH + min(slot + j * SLOTS, KEYS - 1u)];
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
            if (place < KEYS) { new_top = max(new_top, scores[j]); }
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
            if (place < KEYS) {
                let weight = select(exp(scores[j] - top), vec4<f32>(0.0), scores[j] == vec4<f32>(LOWEST));
                total += weight;
                weights[place * SETS + own] = weight;
            }
        }
        workgroupBarrier();
        if (part < 4u) {
            for (var one = 0u; one < OWN; one++) {
                let set_fades = fades[OWN * part + one];
                for (var r = 0u; r < 4u; r++) { sums[4u * one + r] *= set_fades[r]; }
            }
            // Four loads are under way together. Keys past the end have no weight: the last key stands for them.
            for (var n = 0u; n < KEYS; n += 4u) {
                for (var i = 0u; i < 4u; i++) {
                    let m = n + i;
                    let value = vec4<f32>(v_quad(k_first + min(t + m, keys - 1u) * k_step + d));
                    for (var one = 0u; one < OWN; one++) {
                        let weight = weights[m * SETS + OWN * part + one];
                        for (var r = 0u; r < 4u; r++) {
                            sums[4u * one + r] = fma(vec4<f32>(weight[r]), value, sums[4u * one + r]);
                        }
                    }
                }
            }
        }
    }

    found[lane] = total;
    workgroupBarrier();
    if (part >= 4u) { return; }
    for (var one = 0u; one < OWN; one++) {
        var whole = vec4<f32>(0.0);
        for (var n = 0u; n < SLOTS; n++) { whole += found[n * SETS + OWN * part + one]; }
        for (var r = 0u; r < 4u; r++) {
            let s = first_query + OWN * part + one + SETS * r;
            let at = q_first + s * q_step + d;
            if (s <= last_query) { y_put(at, y_t4(divided(sums[4u * one + r], whole[r]))); }
        }
    }
}
