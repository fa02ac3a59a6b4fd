// y = x @ W^T + bias with coded W, for several rows. Each of eight lanes loads four values in depth of one of
// eight rows, and the lanes exchange them. One invocation computes ROWS (8) rows of four neighbouring columns.
// A group is scaled as a whole, as in linear_affine_few. Needs subgroups of at least eight lanes.
//#trusted
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;  // [rows, depth / 4]
//#include affine_operands
//#include affine_columns
//#include finish_columns
//#include add_four

// The codes of steps i .. i+3 of eight.
fn four_steps(w: Words, i: u32) -> mat4x4<f32> {
    return mat4x4<f32>(step_of(w, i), step_of(w, i + 1u), step_of(w, i + 2u), step_of(w, i + 3u));
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
    let mine = min(row + (member & 7u), p.rows - 1u) * (p.depth / 4u);
    var sums = array<vec4<f32>, ROWS>();
    var eight = 0u;
    for (var g = 0u; g < p.depth / p.group; g++) {
        var parts = array<vec4<f32>, ROWS>();
        var total = vec4<f32>();
        for (var i = 0u; i < p.group / 8u; i++) {
            // All loads before the first product: a load is a long code, and registers do not suffice to keep
            // decoded weights during it.
            let words = words_of(c, eight);
            let first = x[mine + 2u * eight];
            let second = x[mine + 2u * eight + 1u];
            total += first + second;
            let low = four_steps(words, 0u);
            let high = four_steps(words, 4u);
//#each r ROWS
            parts[r] = add_four(subgroupBroadcast(first, r), low, parts[r]);
            parts[r] = add_four(subgroupBroadcast(second, r), high, parts[r]);
//#end r
            eight++;
        }
        let line = lines_of(c, g);
        let whole = dot(total, vec4<f32>(1.0));
//#each r ROWS
        sums[r] += parts[r] * line.scale + subgroupBroadcast(whole, r) * line.start;
//#end r
    }
    // A loop keeps the code short, so it compiles faster. It indexes a copy, so that the sums can be in registers.
    var results = sums;
    let end = min(row + ROWS, p.rows);
    for (var r = row; r < end; r++) { finish_columns(r, column, results[r - row]); }
}
