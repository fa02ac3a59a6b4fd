// y = x @ W^T + bias with coded W, for several rows. Each of eight lanes loads four values in depth of one of
// eight rows, and the lanes exchange them. One invocation computes ROWS (8 or 16) rows of four neighbouring
// columns. Needs subgroups of at least eight lanes.
//#trusted
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;  // [rows, depth / 4]
@group(0) @binding(1) var<storage, read> weights: array<u32>;  // [columns, row_bytes / 4]
//#include affine_operands
//#include affine_columns
//#include finish_columns
//#include eight_rows

// The weights of steps i .. i+3 of eight.
fn four_steps(w: Words, i: u32, line: Lines) -> mat4x4<f32> {
    return mat4x4<f32>(
        fma(step_of(w, i), line.scale, line.start), fma(step_of(w, i + 1u), line.scale, line.start),
        fma(step_of(w, i + 2u), line.scale, line.start), fma(step_of(w, i + 3u), line.scale, line.start),
    );
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
    let k4 = p.depth / 4u;
    let first = min(row + (member & 7u), p.rows - 1u) * k4;
    let second = min(row + 8u + (member & 7u), p.rows - 1u) * k4;
    let at = c * (p.row_bytes / 4u);
    var upper = Eight();
    var lower = Eight();
    var eight = 0u;
    for (var g = 0u; g < p.depth / p.group; g++) {
        let line = lines_of(c, g);
        for (var i = 0u; i < p.group / 8u; i++) {
            let words = words_of(at, eight);
            let k = 2u * eight;
            // All weights before the first product: 8% faster than unpacking the high ones after the low ones' products.
            let low = four_steps(words, 0u, line);
            let high = four_steps(words, 4u, line);
            upper = add_eight(x[first + k], low, upper);
//#if SIXTEEN
            lower = add_eight(x[second + k], low, lower);
//#end
            upper = add_eight(x[first + k + 1u], high, upper);
//#if SIXTEEN
            lower = add_eight(x[second + k + 1u], high, lower);
//#end
            eight++;
        }
    }
    // A loop keeps the code short, so it compiles faster.
    var sums = array<vec4<f32>, ROWS>(
        upper.n0, upper.n1, upper.n2, upper.n3, upper.n4, upper.n5, upper.n6, upper.n7,
//#if SIXTEEN
        lower.n0, lower.n1, lower.n2, lower.n3, lower.n4, lower.n5, lower.n6, lower.n7,
//#end
    );
    let end = min(row + ROWS, p.rows);
    for (var r = row; r < end; r++) { finish_columns(r, column, sums[r - row]); }
}
