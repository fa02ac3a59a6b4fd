// Attention of many queries, as two matrix products for every 32 keys. In the first product, each of eight
// lanes has four keys, and the lanes exchange the rows of q. In the second product, each lane has quads of a
// row of v, and the lanes exchange the weights. A row is a query of one of the heads that share keys. Needs
// subgroups of at least eight lanes. Software adapters make long code of every load, so many rows use one
// load. Loops over arrays that should stay in registers are unrolled in the text, because compilers would not
// unroll them.
//#trusted
// Row numbers are clamped to the last row, keys to the last visible key, and quads to the last quad of a row.
// The rule has checked that the last visible key is in the cache and in the mask.
@group(0) @binding(0) var<storage, read_write> y: array<y_word>;  // as q
//#include attention_operands
//#include attention_tiles
//#include attention_score
//#include add_four

const EIGHTS = ROWS / 8u;
const KEYS = 32u;
const FOUR = vec4<u32>(0u, 1u, 2u, 3u);

// The maximum over all eight lanes. Every lane gets it.
fn highest(x: vec4<f32>) -> f32 {
    var top = max(max(x.x, x.y), max(x.z, x.w));
    top = max(top, subgroupShuffleXor(top, 1u));
    top = max(top, subgroupShuffleXor(top, 2u));
    return max(top, subgroupShuffleXor(top, 4u));
}

//#if HAS_MASK
fn mask_four(at: vec4<u32>) -> mask_t4 { return mask_t4(mask_at(at.x), mask_at(at.y), mask_at(at.z), mask_at(at.w)); }
//#end

@compute @workgroup_size(8)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    let blocks = (p.length * p.sharing + ROWS - 1u) / ROWS;
    let key_heads = p.heads / max(p.sharing, 1u);
    let block = flat_group(group, groups);
    if (block >= blocks * key_heads * p.batch) { return; }
    let row = (block % blocks) * ROWS;
    let key_head = (block / blocks) % key_heads;
    let b = block / (blocks * key_heads);
    let tile = tile_at(b);
    let rows = tile.y * p.sharing;
    if (row >= rows) { return; }

    // Lane i has the positions of rows i, i + 8 and so on. A loop of unknown length is compiled to short
    // code.
    let present = min(ROWS, rows - row);
    var q_first: array<u32, EIGHTS>;
    var keys: array<u32, EIGHTS>;
    var query: array<array<vec4<f32>, WIDTH / 4u>, EIGHTS>;
//#if MASK_PER_ROW
    var mask_first: array<u32, EIGHTS>;
//#end
    for (var e = 0u; 8u * e < present; e++) {
        let at = min(row + 8u * e + lane, rows - 1u);
        let s = tile.x + at / p.sharing;
        let h = key_head * p.sharing + at % p.sharing;
        q_first[e] = (b * p.q_batch + s * p.q_length + h * p.q_head) / 4u;
        keys[e] = visible_keys(s);
        for (var d = 0u; d < p.quads; d++) { query[e][d] = q_quad(q_first[e] + d) * p.scale; }
//#if MASK_PER_ROW
        mask_first[e] = b * p.mask_batch + h * p.mask_head + s * p.mask_length;
//#end
    }
    let last = visible_keys(tile.x + (row + present - 1u) / p.sharing);
    let k_first = (caches_of(b, tile.x) * p.k_batch + key_head * p.k_head) / 4u;
    let k_step = p.k_length / 4u;

    var top: array<f32, ROWS>;
    var total: array<f32, ROWS>;  // the sum of the weights of this lane's keys
    var sum: array<array<vec4<f32>, ROWS>, SHARE>;
    for (var r = 0u; r < ROWS; r++) { top[r] = LOWEST; }
    for (var t = first_key(tile.x + row / p.sharing); t < last; t += KEYS) {
        let key = t + 4u * lane + FOUR;
        var at = k_first + min(key, vec4<u32>(last - 1u)) * k_step;
        var x = array<vec4<f32>, ROWS>();  // the scores of this lane's four keys, then their weights
        for (var d = 0u; d < p.quads; d++) {
            let four_keys = transpose(mat4x4<f32>(k_quad(at.x), k_quad(at.y), k_quad(at.z), k_quad(at.w)));
//#each r ROWS
            x[r] = add_four(subgroupBroadcast(query[r / 8u][d], r % 8u), four_keys, x[r]);
//#end r
            at += 1u;
        }
//#if HAS_MASK
        let columns = min(key, vec4<u32>(last - 1u)) * p.mask_key;
//#end
//#if ONE_MASK
        let one_mask = mask_four(b * p.mask_batch + columns);
//#end
//#each r ROWS
        var score = capped4(x[r]);
//#if ONE_MASK
        score = masked(score, one_mask);
//#end
//#if MASK_PER_ROW
        score = masked(score, mask_four(subgroupBroadcast(mask_first[r / 8u], r % 8u) + columns));
//#end
        let seen = are_seen(key, subgroupBroadcast(keys[r / 8u], r % 8u));
        score = select(vec4<f32>(LOWEST), score, seen);
        let new_top = max(top[r], highest(score));
        let fade = exp(top[r] - new_top);
        x[r] = exp(score - new_top);
//#if HAS_MASK
        x[r] = select(x[r], vec4<f32>(0.0), score == vec4<f32>(LOWEST));
//#end
        top[r] = new_top;
        total[r] = total[r] * fade + dot(x[r], vec4<f32>(1.0));
        for (var c = 0u; c < SHARE; c++) { sum[c][r] *= fade; }
//#end r
//#each c SHARE
        for (var giver = 0u; 4u * giver < min(KEYS, last - t); giver++) {
            let at = k_first + min(t + 4u * giver + FOUR, vec4<u32>(last - 1u)) * k_step + min(8u * c + lane, p.quads - 1u);
            let four_keys = mat4x4<f32>(v_quad(at.x), v_quad(at.y), v_quad(at.z), v_quad(at.w));
//#each r ROWS
            sum[c][r] = add_four(subgroupShuffle(x[r], giver), four_keys, sum[c][r]);
//#end r
        }
//#end c
    }
    for (var r = 0u; r < present; r++) {
        let whole = subgroupAdd(total[r]);
        let y_first = subgroupShuffle(q_first[r / 8u], r % 8u);
        for (var d = lane; d < p.quads; d += 8u) { y_put(y_first + d, y_t4(divided(sum[d / 8u][r], whole))); }
    }
}
