// y = x @ W^T + bias with W in codes of 4 or 8 bits, for several rows, in parts of 16 steps in depth. Each of eight
// lanes loads EIGHTS times eight steps of one of ROWS (4 or 8) rows of x, and the lanes exchange them. One
// invocation computes all rows of four neighbouring columns. A part is scaled as a whole, as in
// linear_affine_few. Needs subgroups of at least eight lanes. Longer parts would need fewer loads, but then the
// loop does not fit in the code cache of a CPU.
//#trusted
@group(0) @binding(0) var<storage, read> x: array<eight_t>;  // [rows, depth / 8]
//#include affine_operands
//#include affine_parts
//#include affine_lines
//#include finish_columns

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
    var at = first_part(c);
    // Of four rows, the lanes 0 .. 3 have the first eight steps, and the lanes 4 .. 7 the last.
    var mine = min(row + (member & (ROWS - 1u)), p.rows - 1u) * (p.depth / 8u) + (member & 7u) / ROWS;
    // Parameters are read before the loop: a software adapter would read them in every round.
    let count = p.depth / 16u;
    var line: Lines;
    var sums = array<vec4<f32>, ROWS>();
    for (var part = 0u; part < count; part++) {
        var first: array<vec4<f32>, EIGHTS>;
        var second: array<vec4<f32>, EIGHTS>;
        var total = 0.0;
//#each e EIGHTS
        let eight = eight_words(x[mine + e]);
        first[e] = bitcast<vec4<f32>>(eight.low);
        second[e] = bitcast<vec4<f32>>(eight.high);
        total += dot(first[e] + second[e], vec4<f32>(1.0));
        first[e] *= PLACE;
        second[e] *= LATER_PLACE;
//#end e
        if (EIGHTS == 1u) { total += subgroupShuffleXor(total, 4u); }
        mine += 2u;
        let words = columns_at(at);
        at += 1u;
        var parts = array<vec4<f32>, ROWS>();
//#each e 2
//#each i 4
        let codes = step_codes(words, 8u * e + i);
//#each r ROWS
        parts[r] += subgroupBroadcast(first[e % EIGHTS][i], r + ROWS * (e / EIGHTS)) * codes;
//#end r
//#end i
//#each i 4
        let codes = step_codes(words, 8u * e + 4u + i);
//#each r ROWS
        parts[r] += subgroupBroadcast(second[e % EIGHTS][i], r + ROWS * (e / EIGHTS)) * codes;
//#end r
//#end i
//#end e
        // Scales are loaded once per group.
        if (part % (2u * PAIRS_PER_GROUP) == 0u) { line = lines_of(c, part / (2u * PAIRS_PER_GROUP)); }
//#each r ROWS
        sums[r] += parts[r] * line.scale + subgroupBroadcast(total, r) * line.start;
//#end r
    }
    // A loop keeps the code short, so it compiles faster. It indexes a copy, so that the sums can be in registers.
    var results = sums;
    let end = min(row + ROWS, p.rows);
    for (var r = row; r < end; r++) { finish_columns(r, column, results[r - row]); }
}
