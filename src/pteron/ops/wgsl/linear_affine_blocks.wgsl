// y = x @ W^T + bias with W in codes of 4 or 8 bits, for up to ROWS rows, in blocks of 64 steps in depth. Each of
// eight lanes loads eight steps of a row of x, and the lanes exchange them. One invocation computes four
// neighbouring columns. A part of 32 steps is scaled as a whole, as in linear_affine_few. Needs subgroups of at
// least eight lanes.
//#trusted
@group(0) @binding(0) var<storage, read> x: array<eight_t>;        // [rows, depth / 8]
@group(0) @binding(1) var<storage, read> weights: array<eight_t>;  // [columns, row_bytes / 32]
//#include affine_operands
//#include affine_lines
//#include affine_places
//#include eight_words
//#include finish_columns

// Word i of four columns.
struct Columns { a: Eight, b: Eight, c: Eight, d: Eight }

fn word_of(eight: Eight, i: u32) -> u32 {
    if (i < 4u) { return eight.low[i]; }
    return eight.high[i - 4u];
}
fn words_at(columns: Columns, i: u32) -> vec4<u32> {
    return vec4<u32>(word_of(columns.a, i), word_of(columns.b, i), word_of(columns.c, i), word_of(columns.d, i));
}
fn columns_at(at: vec4<u32>) -> Columns {
    return Columns(eight_words(weights[at.x]), eight_words(weights[at.y]), eight_words(weights[at.z]), eight_words(weights[at.w]));
}

// Read each cache line of the weights of this subgroup, in the order of memory. The later reads, of many columns at
// once, then do not wait for memory one by one.
fn touch(first_column: u32, lane: u32, row: u32) -> u32 {
    let end = min(first_column + 32u, p.columns) * row;
    var touched = 0u;
    for (var i = first_column * row + 2u * lane; i < end; i += 16u) { touched |= first_of(weights[i]); }
    return touched;
}

const LANES = 16u;

@compute @workgroup_size(LANES)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
    @builtin(subgroup_invocation_id) member: u32,
) {
    if (p.rows == 0u) { return; }
    let column = 4u * (flat_group(group, groups) * LANES + lane);
    let eighth = member & 7u;
    // Rows and columns past the end repeat the last one, because all lanes must exchange values. They are not
    // stored.
    let c = min(vec4<u32>(column) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(p.columns - 1u));
    // Parameters are read before the loop: a software adapter would read them in every round.
    let row = p.row_bytes / 32u;
    let blocks = p.depth / 64u;
    let x_row = p.depth / 8u;
    let last_row = p.rows - 1u;
    var at = c * row;
    let touched = touch(column - 4u * eighth, eighth, row);
    var sums = array<vec4<f32>, ROWS>();
    for (var block = 0u; block < blocks; block++) {
        var first = array<vec4<f32>, ROWS>();
        var second = array<vec4<f32>, ROWS>();
        var totals = array<f32, ROWS>();  // of x in each part
//#each r ROWS
        let eight = eight_words(x[min(r, last_row) * x_row + 8u * block + eighth]);
        first[r] = bitcast<vec4<f32>>(eight.low);
        second[r] = bitcast<vec4<f32>>(eight.high);
        totals[r] = dot(first[r] + second[r], vec4<f32>(1.0));
        totals[r] += subgroupShuffleXor(totals[r], 1u);
        totals[r] += subgroupShuffleXor(totals[r], 2u);
        first[r] *= PLACE;
        second[r] *= LATER_PLACE;
//#end r
//#if NIBBLES
        let words = columns_at(at);
        at += 1u;
//#end
//#each part 2
//#if BYTES
        let words = columns_at(at);
        at += 1u;
//#end
        var parts = array<vec4<f32>, ROWS>();
//#each v 4
//#if NIBBLES
        let word = words_at(words, 4u * part + v);
//#end
//#if BYTES
        let word = words_at(words, 2u * v);
        let later_word = words_at(words, 2u * v + 1u);
//#end
//#each i 4
        let codes = codes_at(word, i);
//#each r ROWS
        parts[r] += vec4<f32>(subgroupBroadcast(first[r][i], 4u * part + v)) * codes;
//#end r
//#end i
//#each i 4
//#if NIBBLES
        let codes = codes_at(word, 4u + i);
//#end
//#if BYTES
        let codes = codes_at(later_word, i);
//#end
//#each r ROWS
        parts[r] += vec4<f32>(subgroupBroadcast(second[r][i], 4u * part + v)) * codes;
//#end r
//#end i
//#end v
        let line = lines_of(c, (2u * block + part) / PARTS_PER_GROUP);
//#each r ROWS
        sums[r] += parts[r] * line.scale + subgroupBroadcast(totals[r], 4u * part) * line.start;
//#end r
//#end part
    }
    // This never holds. Without a use, a compiler would leave out `touch`.
    if (touched == 1u && p.rows == 0xffffffffu) { sums[0] += 1.0; }
    var results = sums;
    for (var r = 0u; r < min(ROWS, p.rows); r++) { finish_columns(r, column, results[r]); }
}
