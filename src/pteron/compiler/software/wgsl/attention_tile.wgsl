// Attention of many queries, as two matrix products for every 32 keys. In the first product, each of eight
// lanes has four keys, and the lanes exchange the rows of q. In the second product, each lane has quads of a
// row of v, and the lanes exchange the weights. A row is a query of one of the heads that share keys. Needs
// subgroups of at least eight lanes. Software adapters make long code of every load, so many rows use one
// load. They make even longer code of an access to an array at an index that is not constant. So loops over
// arrays are unrolled in the text, and rows of q and of the result are in workgroup memory.
//#trusted
// Row numbers are clamped to the last row, keys to the last visible key, and quads to the last quad of a row.
// The rule has checked that the last visible key is in the cache and in the mask.
@group(0) @binding(0) var<storage, read_write> y: array<y_word>;  // as q
//#include attention_operands
//#include attention_tiles
//#include attention_score
//#include add_four
//#include eight_lanes

const EIGHTS = ROWS / 8u;
const KEYS = 32u;
const FOUR = vec4<u32>(0u, 1u, 2u, 3u);

// Rows of q, and then of the result. A lane reads only what it has written.
var<workgroup> tile_rows: array<array<vec4<f32>, WIDTH / 4u>, ROWS>;

//#if MASK != none
fn mask_four(at: vec4<u32>) -> mask_t4 { return mask_t4(mask_at(at.x), mask_at(at.y), mask_at(at.z), mask_at(at.w)); }
//#end

// The first quad of a row, relative to that of the tile.
fn start_of(row: u32) -> u32 { return (row / p.sharing * p.q_length + row % p.sharing * p.q_head) / 4u; }

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

    // Lane i has what belongs to rows i, i + 8 and so on.
    let present = min(ROWS, rows - row);
    var keys: array<u32, EIGHTS>;
//#if MASK == per_row
    var mask_first: array<u32, EIGHTS>;
//#end
    for (var e = 0u; e < EIGHTS; e++) {
        let at = min(row + 8u * e + lane, rows - 1u);
        let s = tile.x + at / p.sharing;
        keys[e] = visible_keys(s);
//#if MASK == per_row
        mask_first[e] = b * p.mask_batch + (key_head * p.sharing + at % p.sharing) * p.mask_head + s * p.mask_length;
//#end
    }
    let q_tile = (b * p.q_batch + tile.x * p.q_length + key_head * p.sharing * p.q_head) / 4u;
    for (var i = 0u; i < (present + 7u) / 8u * p.quads; i++) {
        let r = i / p.quads * 8u + lane;
        let d = i % p.quads;
        tile_rows[r][d] = q_quad(q_tile + start_of(min(row + r, rows - 1u)) + d) * p.scale;
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
            var query: array<vec4<f32>, EIGHTS>;
            for (var e = 0u; e < EIGHTS; e++) { query[e] = tile_rows[8u * e + lane][d]; }
//#each r ROWS
            x[r] = add_four(subgroupBroadcast(query[r / 8u], r % 8u), four_keys, x[r]);
//#end r
            at += 1u;
        }
//#if MASK != none
        let columns = min(key, vec4<u32>(last - 1u)) * p.mask_key;
//#end
//#if MASK == shared
        let one_mask = mask_four(b * p.mask_batch + columns);
//#end
//#each r ROWS
        var score = capped4(x[r]);
//#if MASK == shared
        score = masked(score, one_mask);
//#elif MASK == per_row
        score = masked(score, mask_four(subgroupBroadcast(mask_first[r / 8u], r % 8u) + columns));
//#end
        let seen = are_seen(key, subgroupBroadcast(keys[r / 8u], r % 8u));
        score = select(vec4<f32>(LOWEST), score, seen);
        let new_top = max(top[r], max_of_eight(max(max(score.x, score.y), max(score.z, score.w))));
        let fade = exp(top[r] - new_top);
        x[r] = exp(score - new_top);
//#if MASK != none
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
    let last_quad = WIDTH / 4u - 1u;
    for (var r = 0u; r < present; r++) {
        let whole = sum_of_eight(total[r]);
        for (var c = 0u; c < SHARE; c++) { tile_rows[r][min(8u * c + lane, last_quad)] = divided(sum[c][r], whole); }
        let y_row = q_tile + start_of(row + r);
        for (var d = lane; d < p.quads; d += 8u) { y_put(y_row + d, y_t4(tile_rows[r][d])); }
    }
}
