// y = x @ W^T + bias with 4-bit W, for one row, by lanes that share x: eight of them load eight values between them
// and hand them round. One invocation has four neighbouring columns, of which a word brings eight weights each.
// Needs subgroups of at least eight lanes.
//#trusted
@group(0) @binding(0) var<storage, read> x: array<f32>;            // [rows, depth]
@group(0) @binding(1) var<storage, read> weights: array<u32>;      // [columns, packed / 4]
//#include q4_operands
//#include q4_columns
//#include finish_columns

// What eight steps in depth add to four columns: lane i has x of step i.
fn add_eight(x: f32, w: Steps, sum: vec4<f32>) -> vec4<f32> {
    var s = fma(vec4<f32>(subgroupBroadcast(x, 0u)), w.low[0], sum);
    s = fma(vec4<f32>(subgroupBroadcast(x, 1u)), w.low[1], s);
    s = fma(vec4<f32>(subgroupBroadcast(x, 2u)), w.low[2], s);
    s = fma(vec4<f32>(subgroupBroadcast(x, 3u)), w.low[3], s);
    s = fma(vec4<f32>(subgroupBroadcast(x, 4u)), w.high[0], s);
    s = fma(vec4<f32>(subgroupBroadcast(x, 5u)), w.high[1], s);
    s = fma(vec4<f32>(subgroupBroadcast(x, 6u)), w.high[2], s);
    return fma(vec4<f32>(subgroupBroadcast(x, 7u)), w.high[3], s);
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
    // Columns past the end repeat the last one: every lane stays in step, and stores skip them.
    let c = min(vec4<u32>(column) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(p.columns - 1u));
    var at = c * (p.packed / 4u);
    var k = member & 7u;
    var sum = vec4<f32>(0.0);
    for (var g = 0u; g < p.depth / p.group; g++) {
        var part = vec4<f32>(0.0);
        for (var i = 0u; i < p.group / 8u; i++) {
            part = add_eight(x[k], unpack(words_at(at)), part);
            at += vec4<u32>(1u);
            k += 8u;
        }
        sum += part * scales_of(g, c);
    }
    finish_columns(0u, column, sum);
}
