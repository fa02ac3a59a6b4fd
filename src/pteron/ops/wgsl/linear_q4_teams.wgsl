// y = x @ W^T + bias with 4-bit W, for few rows: a team of lanes goes along the depth of two columns together,
// neighbours reading neighbouring words, and adds up what it found. Four words lie in one group.
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;        // [rows, depth / 4]
@group(0) @binding(1) var<storage, read> weights: array<vec4<u32>>;  // [columns, packed / 16]
//#include q4_operands
//#include q4
//#include store

const TEAM = 16u;              // lanes
const ACROSS = 2u * WG / TEAM; // columns of a workgroup
const SUMS = ROWS * ACROSS;    // that a workgroup makes

var<workgroup> parts: array<f32, TEAM * SUMS>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let blocks = (p.columns + ACROSS - 1u) / ACROSS;
    let block = flat_group(group, groups);
    let row = (block / blocks) * ROWS;
    let column = (block % blocks) * ACROSS;
    if (row >= p.rows) { return; }
    let team = lane / TEAM;
    let member = lane % TEAM;
    // Rows and columns past the end repeat the last one, and are not stored.
    let c = min(vec2<u32>(column + 2u * team) + vec2<u32>(0u, 1u), vec2<u32>(p.columns - 1u));
    let first = c * (p.packed / 16u);
    var sum: array<vec2<f32>, ROWS>;
    for (var k = member; k < p.depth / 32u; k += TEAM) {
        let words0 = weights[first.x + k];
        let words1 = weights[first.y + k];
        var part = array<vec2<f32>, ROWS>();
        for (var i = 0u; i < 4u; i++) {
            let low0 = low_quad(words0[i]);
            let high0 = high_quad(words0[i]);
            let low1 = low_quad(words1[i]);
            let high1 = high_quad(words1[i]);
            for (var r = 0u; r < ROWS; r++) {
                let at = min(row + r, p.rows - 1u) * (p.depth / 4u) + 8u * k + 2u * i;
                let low = x[at];
                let high = x[at + 1u];
                part[r] += vec2<f32>(dot(low, low0) + dot(high, high0), dot(low, low1) + dot(high, high1));
            }
        }
        let scale = vec2<u32>((32u * k / p.group) * p.scale_row) + c;
        for (var r = 0u; r < ROWS; r++) { sum[r] += part[r] * vec2<f32>(scales[scale.x], scales[scale.y]); }
    }
    for (var r = 0u; r < ROWS; r++) {
        let at = member * SUMS + r * ACROSS + 2u * team;
        parts[at] = sum[r].x;
        parts[at + 1u] = sum[r].y;
    }
    workgroupBarrier();
    if (lane >= SUMS) { return; }
    let to = column + lane % ACROSS;
    var total = 0.0;
    if (HAS_BIAS) { total = bias[min(to, p.columns - 1u)]; }
    for (var m = 0u; m < TEAM; m++) { total += parts[m * SUMS + lane]; }
    store(row + lane / ACROSS, to, total);
}
