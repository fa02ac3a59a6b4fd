// y = x @ W^T + bias with coded W, for up to ROWS rows. Each of eight lanes loads one of eight values of a row
// of x, and the lanes exchange them. Weights are loaded and decoded once for all rows. One invocation computes
// four neighbouring columns. A group is scaled as a whole: the sum of x * (scale * code + start) is
// scale * (sum of x * code) + start * (sum of x). Needs subgroups of at least eight lanes.
//#trusted
@group(0) @binding(0) var<storage, read> x: array<f32>;        // [rows, depth]
//#include affine_operands
//#include affine_columns
//#include finish_columns

// The sum over eight lanes.
fn sum_of_eight(mine: f32) -> f32 {
    let two = mine + subgroupShuffleXor(mine, 1u);
    let four = two + subgroupShuffleXor(two, 2u);
    return four + subgroupShuffleXor(four, 4u);
}

// The codes of four columns, for eight steps in depth.
struct Steps {
    n0: vec4<f32>, n1: vec4<f32>, n2: vec4<f32>, n3: vec4<f32>,
    n4: vec4<f32>, n5: vec4<f32>, n6: vec4<f32>, n7: vec4<f32>,
}

fn steps_of(w: Words) -> Steps {
    return Steps(
        step_of(w, 0u), step_of(w, 1u), step_of(w, 2u), step_of(w, 3u),
        step_of(w, 4u), step_of(w, 5u), step_of(w, 6u), step_of(w, 7u),
    );
}

// The sum of eight steps in depth, for four columns. Lane i has x of step i.
fn add_eight(x: f32, w: Steps, sum: vec4<f32>) -> vec4<f32> {
    var s = fma(vec4<f32>(subgroupBroadcast(x, 0u)), w.n0, sum);
    s = fma(vec4<f32>(subgroupBroadcast(x, 1u)), w.n1, s);
    s = fma(vec4<f32>(subgroupBroadcast(x, 2u)), w.n2, s);
    s = fma(vec4<f32>(subgroupBroadcast(x, 3u)), w.n3, s);
    s = fma(vec4<f32>(subgroupBroadcast(x, 4u)), w.n4, s);
    s = fma(vec4<f32>(subgroupBroadcast(x, 5u)), w.n5, s);
    s = fma(vec4<f32>(subgroupBroadcast(x, 6u)), w.n6, s);
    return fma(vec4<f32>(subgroupBroadcast(x, 7u)), w.n7, s);
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
    // Rows and columns past the end repeat the last one, because all lanes must exchange values. They are not
    // stored.
    let c = min(vec4<u32>(column) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(p.columns - 1u));
    var eight = 0u;
    var sums = array<vec4<f32>, ROWS>();
    for (var g = 0u; g < p.depth / p.group; g++) {
        var parts = array<vec4<f32>, ROWS>();
        var totals = array<f32, ROWS>();
        for (var i = 0u; i < p.group / 8u; i++) {
            // All loads before the first product, as in linear_affine_subgroup.
            let words = words_of(c, eight);
            var mine = array<f32, ROWS>();
//#each r ROWS
            mine[r] = x[min(r, p.rows - 1u) * p.depth + 8u * eight + (member & 7u)];
            totals[r] += mine[r];
//#end r
            let steps = steps_of(words);
//#each r ROWS
            parts[r] = add_eight(mine[r], steps, parts[r]);
//#end r
            eight++;
        }
        let line = lines_of(c, g);
//#each r ROWS
        sums[r] += parts[r] * line.scale + sum_of_eight(totals[r]) * line.start;
//#end r
    }
    var results = sums;
    for (var r = 0u; r < min(ROWS, p.rows); r++) { finish_columns(r, column, results[r]); }
}
