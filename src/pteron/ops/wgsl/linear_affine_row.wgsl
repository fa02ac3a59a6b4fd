// y = x @ W^T + bias with coded W, for one row. Each of eight lanes loads one of eight values of x, and the
// lanes exchange them. One invocation computes four neighbouring columns. A group is scaled as a whole: the
// sum of x * (scale * code + start) is scale * (sum of x * code) + start * (sum of x). Needs subgroups of at
// least eight lanes.
//#trusted
@group(0) @binding(0) var<storage, read> x: array<f32>;        // [rows, depth]
@group(0) @binding(1) var<storage, read> weights: array<u32>;  // [columns, row_bytes / 4]
//#include affine_operands
//#include affine_columns
//#include finish_columns

// The sum over eight lanes.
fn sum_of_eight(mine: f32) -> f32 {
    let two = mine + subgroupShuffleXor(mine, 1u);
    let four = two + subgroupShuffleXor(two, 2u);
    return four + subgroupShuffleXor(four, 4u);
}

// The sum of eight steps in depth, for four columns. Lane i has x of step i.
fn add_eight(x: f32, w: Words, sum: vec4<f32>) -> vec4<f32> {
    var s = fma(vec4<f32>(subgroupBroadcast(x, 0u)), step_of(w, 0u), sum);
    s = fma(vec4<f32>(subgroupBroadcast(x, 1u)), step_of(w, 1u), s);
    s = fma(vec4<f32>(subgroupBroadcast(x, 2u)), step_of(w, 2u), s);
    s = fma(vec4<f32>(subgroupBroadcast(x, 3u)), step_of(w, 3u), s);
    s = fma(vec4<f32>(subgroupBroadcast(x, 4u)), step_of(w, 4u), s);
    s = fma(vec4<f32>(subgroupBroadcast(x, 5u)), step_of(w, 5u), s);
    s = fma(vec4<f32>(subgroupBroadcast(x, 6u)), step_of(w, 6u), s);
    return fma(vec4<f32>(subgroupBroadcast(x, 7u)), step_of(w, 7u), s);
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
    // Columns past the end repeat the last column, because all lanes must exchange values. They are not
    // stored.
    let c = min(vec4<u32>(column) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(p.columns - 1u));
    let row = c * (p.row_bytes / 4u);
    var eight = 0u;
    var sum = vec4<f32>(0.0);
    for (var g = 0u; g < p.depth / p.group; g++) {
        var part = vec4<f32>(0.0);
        var total = 0.0;
        for (var i = 0u; i < p.group / 8u; i++) {
            let mine = x[8u * eight + (member & 7u)];
            part = add_eight(mine, words_of(row, eight), part);
            total += mine;
            eight++;
        }
        let line = lines_of(c, g);
        sum += part * line.scale + sum_of_eight(total) * line.start;
    }
    finish_columns(0u, column, sum);
}
