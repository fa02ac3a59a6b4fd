// y = x @ W^T + bias with W in codes of 4 or 8 bits, for several rows, in parts of 32 steps in depth. Each of eight
// lanes loads one of ROWS (8) rows of x, and the lanes exchange them. One invocation computes all rows of four
// neighbouring columns. A part is scaled as a whole, as in linear_affine_few. Needs subgroups of at least eight
// lanes.
//#trusted
@group(0) @binding(0) var<storage, read> x: array<eight_t>;       // [rows, depth / 8]
@group(0) @binding(1) var<storage, read> weights: array<four_t>;  // [columns, row_bytes / 16]
//#include affine_operands
//#include affine_lines
//#include affine_places
//#include eight_words
//#include four_words
//#include finish_columns

// Four words of four columns.
struct Columns { a: vec4<u32>, b: vec4<u32>, c: vec4<u32>, d: vec4<u32> }

fn columns_at(at: vec4<u32>) -> Columns {
    return Columns(
        four_words(weights[at.x]), four_words(weights[at.y]), four_words(weights[at.z]), four_words(weights[at.w])
    );
}
fn words_at(columns: Columns, i: u32) -> vec4<u32> {
    return vec4<u32>(columns.a[i], columns.b[i], columns.c[i], columns.d[i]);
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
    // Neighbouring workgroups have the same columns, so they read the same weights.
    let down = (p.rows + ROWS - 1u) / ROWS;
    let block = flat_group(group, groups);
    let row = (block % down) * ROWS;
    let column = ((block / down) * LANES + lane) * 4u;
    // Rows and columns past the end repeat the last one, because all lanes must exchange values. They are not
    // stored.
    let c = min(vec4<u32>(column) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(p.columns - 1u));
    var at = c * (p.row_bytes / 16u);
    var mine = min(row + (member & 7u), p.rows - 1u) * (p.depth / 8u);
    // Parameters are read before the loop: a software adapter would read them in every round.
    let count = p.depth / 32u;
    var sums = array<vec4<f32>, ROWS>();
    for (var part = 0u; part < count; part++) {
        var first: array<vec4<f32>, 4>;
        var second: array<vec4<f32>, 4>;
        var total = 0.0;
//#each e 4
        let eight = eight_words(x[mine + e]);
        first[e] = bitcast<vec4<f32>>(eight.low);
        second[e] = bitcast<vec4<f32>>(eight.high);
        total += dot(first[e] + second[e], vec4<f32>(1.0));
        first[e] *= PLACE;
        second[e] *= LATER_PLACE;
//#end e
        mine += 4u;
        let words = columns_at(at);
        at += 1u;
//#if BYTES
        let more_words = columns_at(at);
        at += 1u;
//#end
        var parts = array<vec4<f32>, ROWS>();
//#each e 4
//#if NIBBLES
        let word = words_at(words, e);
//#end
//#if BYTES
        var word = words_at(words, 2u * (e & 1u));
        var later_word = words_at(words, 2u * (e & 1u) + 1u);
        if (e > 1u) {
            word = words_at(more_words, 2u * (e & 1u));
            later_word = words_at(more_words, 2u * (e & 1u) + 1u);
        }
//#end
//#each i 4
        let codes = codes_at(word, i);
//#each r ROWS
        parts[r] += subgroupBroadcast(first[e][i], r) * codes;
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
        parts[r] += subgroupBroadcast(second[e][i], r) * codes;
//#end r
//#end i
//#end e
        let line = lines_of(c, part / PARTS_PER_GROUP);
//#each r ROWS
        sums[r] += parts[r] * line.scale + subgroupBroadcast(total, r) * line.start;
//#end r
    }
    // A loop keeps the code short, so it compiles faster. It indexes a copy, so that the sums can be in registers.
    var results = sums;
    let end = min(row + ROWS, p.rows);
    for (var r = row; r < end; r++) { finish_columns(r, column, results[r - row]); }
}
