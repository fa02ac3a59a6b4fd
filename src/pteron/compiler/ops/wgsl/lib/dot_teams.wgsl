// x @ W^T for few rows. The lanes of a team divide the depth of four columns, and then add up their sums.
// Neighbouring lanes read neighbouring quads. See dot_quads.
//#include dot_quads

const TEAM = 32u;
const TEAMS = WG / TEAM;

var<workgroup> parts: array<sum4_t, ROWS * WG>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let size = extent();
    let origin = corner(size, flat_group(group, groups), ROWS, 4u * TEAMS);
    if (origin.matrix >= size.matrices) { return; }
    let member = lane % TEAM;
    let column = origin.column + 4u * (lane / TEAM);
    let c = min(vec4<u32>(column) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(size.columns - 1u));
    var sum: array<sum4_t, ROWS>;
    for (var turn = 0u; turn < (size.quads + TEAM - 1u) / TEAM; turn++) {
        let k = member + turn * TEAM;
        if (k >= size.quads) { break; }
        let w0 = column_quad(origin.matrix, c.x, k);
        let w1 = column_quad(origin.matrix, c.y, k);
        let w2 = column_quad(origin.matrix, c.z, k);
        let w3 = column_quad(origin.matrix, c.w, k);
        for (var r = 0u; r < ROWS; r++) {
            let v = row_quad(origin.matrix, min(origin.row + r, size.rows - 1u), k);
            sum[r] += sum4_t(times(v, w0), times(v, w1), times(v, w2), times(v, w3));
        }
    }
    for (var r = 0u; r < ROWS; r++) { parts[r * WG + lane] = sum[r]; }
    for (var half = TEAM / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (member < half) {
            for (var r = 0u; r < ROWS; r++) { parts[r * WG + lane] += parts[r * WG + lane + half]; }
        }
    }
    if (member > 0u || column >= size.columns) { return; }
    for (var r = 0u; r < min(ROWS, size.rows - origin.row); r++) {
        finish_four(origin.matrix, origin.row + r, column, parts[r * WG + lane]);
    }
}
