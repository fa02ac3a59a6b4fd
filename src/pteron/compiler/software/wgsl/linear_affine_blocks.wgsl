// y = x @ W^T + bias with W in codes of 4 or 8 bits, for up to ROWS rows, in blocks of 32 steps in depth. Each of
// eight lanes loads four steps of every row of x, and the lanes exchange them. One invocation computes four
// neighbouring columns. A block is scaled as a whole, as in linear_affine_few. Needs subgroups of at least eight
// lanes.
//#trusted
@group(0) @binding(0) var<storage, read> x: array<four_t>;  // [rows, depth / 4]
//#include affine_operands
//#include affine_parts
//#include affine_lines
//#include finish_columns

//#if not INTERLEAVED
// Read each cache line of the weights of this subgroup, in the order of memory. The later reads, of many columns at
// once, then do not wait for memory one by one.
fn touch(first_column: u32, lane: u32) -> u32 {
    let row = p.row_bytes / (2u * BITS);
    let line = 32u / BITS;
    let end = min(first_column + 32u, p.columns) * row;
    var touched = 0u;
    for (var i = first_column * row + line * lane; i < end; i += 8u * line) { touched |= columns_at(vec4<u32>(i)).a.x; }
    return touched;
}
//#end

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
    let blocks = p.depth / 32u;
    let x_row = p.depth / 4u;
    let last_row = p.rows - 1u;
    let place = select(PLACE, LATER_PLACE, (eighth & 1u) == 1u);
    var at = first_part(c);
//#if not INTERLEAVED
    let touched = touch(column - 4u * eighth, eighth);
//#end
    var sums = array<vec4<f32>, ROWS>();
    for (var block = 0u; block < blocks; block++) {
        var mine = array<vec4<f32>, ROWS>();
        var totals = array<f32, ROWS>();
//#each r ROWS
        mine[r] = bitcast<vec4<f32>>(four_words(x[min(r, last_row) * x_row + 8u * block + eighth]));
        totals[r] = dot(mine[r], vec4<f32>(1.0));
        totals[r] += subgroupShuffleXor(totals[r], 1u);
        totals[r] += subgroupShuffleXor(totals[r], 2u);
        totals[r] += subgroupShuffleXor(totals[r], 4u);
        mine[r] *= place;
//#end r
        var parts = array<vec4<f32>, ROWS>();
//#each part 2
        let words = columns_at(at + part);
//#each giver 4
//#each i 4
        let codes = step_codes(words, 4u * giver + i);
//#each r ROWS
        parts[r] += vec4<f32>(subgroupBroadcast(mine[r][i], 4u * part + giver)) * codes;
//#end r
//#end i
//#end giver
//#end part
        at += 2u;
        let line = lines_of(c, block / PAIRS_PER_GROUP);
//#each r ROWS
        sums[r] += parts[r] * line.scale + totals[r] * line.start;
//#end r
    }
//#if not INTERLEAVED
    // This never holds. Without a use, a compiler would leave out `touch`.
    if (touched == 1u && p.rows == 0xffffffffu) { sums[0] += 1.0; }
//#end
    var results = sums;
    for (var r = 0u; r < min(ROWS, p.rows); r++) { finish_columns(r, column, results[r]); }
}
