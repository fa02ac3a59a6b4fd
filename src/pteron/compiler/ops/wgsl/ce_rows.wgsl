// The maximum and the sum of exponentials of each row, from its parts, and the loss of the row.
@group(0) @binding(0) var<storage, read> logits: array<logits_word>;     // [rows, width]
@group(0) @binding(1) var<storage, read> labels: array<labels_word>;     // [rows]; negative: the row does not count
@group(0) @binding(2) var<storage, read> parts: array<vec2<f32>>;        // [rows, PARTS]
@group(0) @binding(3) var<storage, read_write> stats: array<vec4<f32>>;  // [rows]: maximum, sum, loss
@group(0) @binding(4) var<uniform> p: Params;

struct Params { rows: u32, width: u32, n_valid: f32 }

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let row = flat_index(id, groups);
    if (row >= p.rows) { return; }
    var top = parts[row * PARTS].x;
    for (var k = 1u; k < PARTS; k++) { top = max(top, parts[row * PARTS + k].x); }
    var sum = 0.0;
    for (var k = 0u; k < PARTS; k++) {
        let part = parts[row * PARTS + k];
        sum += part.y * exp(part.x - top);
    }
    let label = i32(labels_at(row));
    let picked = f32(logits_at(row * p.width + min(u32(max(label, 0)), p.width - 1u)));
    stats[row] = vec4<f32>(top, sum, select(0.0, (top + log(sum) - picked) / p.n_valid, label >= 0), 0.0);
}
