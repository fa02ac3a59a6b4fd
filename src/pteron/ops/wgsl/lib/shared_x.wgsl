// x @ W^T + bias, where eight lanes load eight values of x between them and hand them round: a value is loaded
// once for all. One invocation computes ROWS rows of four neighbouring columns.
// Needs subgroups of at least eight lanes. The kernel says how its weights are kept, in eights along the depth:
// eights()     how many there are from one column to the next
// eight(at)    one of each of four columns
// per_group()  how many share a scale
// scale(g, c)  of group g in four columns
struct Eight {
    n0: vec4<f32>, n1: vec4<f32>, n2: vec4<f32>, n3: vec4<f32>,
    n4: vec4<f32>, n5: vec4<f32>, n6: vec4<f32>, n7: vec4<f32>,
}

//#include store

fn dot_eight(x: f32, w: Eight, sum: vec4<f32>) -> vec4<f32> {
    var s = fma(vec4<f32>(subgroupBroadcast(x, 0u)), w.n0, sum);
    s = fma(vec4<f32>(subgroupBroadcast(x, 1u)), w.n1, s);
    s = fma(vec4<f32>(subgroupBroadcast(x, 2u)), w.n2, s);
    s = fma(vec4<f32>(subgroupBroadcast(x, 3u)), w.n3, s);
    s = fma(vec4<f32>(subgroupBroadcast(x, 4u)), w.n4, s);
    s = fma(vec4<f32>(subgroupBroadcast(x, 5u)), w.n5, s);
    s = fma(vec4<f32>(subgroupBroadcast(x, 6u)), w.n6, s);
    return fma(vec4<f32>(subgroupBroadcast(x, 7u)), w.n7, s);
}

@compute @workgroup_size(LANES)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
    @builtin(subgroup_invocation_id) member: u32,
) {
    let across = (p.columns + 4u * LANES - 1u) / (4u * LANES);
    let block = flat_group(group, groups);
    let row = (block / across) * ROWS;
    if (row >= p.rows) { return; }
    let column = ((block % across) * LANES + lane) * 4u;
    // Rows and columns past the end repeat the last one: every lane stays in step, and stores skip them.
    let c = min(vec4<u32>(column) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(p.columns - 1u));
    var at = c * eights();
    var first: array<u32, ROWS>;
    for (var r = 0u; r < ROWS; r++) { first[r] = min(row + r, p.rows - 1u) * p.depth + (member & 7u); }
    var sum = array<vec4<f32>, ROWS>();
    var k = 0u;
    for (var g = 0u; k < p.depth; g++) {
        var part = array<vec4<f32>, ROWS>();
        for (var i = 0u; i < per_group(); i++) {
            let w = eight(at);
            for (var r = 0u; r < ROWS; r++) { part[r] = dot_eight(x[first[r] + k], w, part[r]); }
            at += vec4<u32>(1u);
            k += 8u;
        }
        let s = scale(g, c);
        for (var r = 0u; r < ROWS; r++) { sum[r] += part[r] * s; }
    }
    var b = vec4<f32>(0.0);
    if (HAS_BIAS) { b = vec4<f32>(bias[c.x], bias[c.y], bias[c.z], bias[c.w]); }
    for (var r = 0u; r < ROWS; r++) {
        let four = sum[r] + b;
        store(row + r, column, four.x);
        store(row + r, column + 1u, four.y);
        store(row + r, column + 2u, four.z);
        store(row + r, column + 3u, four.w);
    }
}
