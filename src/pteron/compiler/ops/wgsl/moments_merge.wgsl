// The mean and the reciprocal standard deviation of each row, from the moments of its parts (Chan's formula).
@group(0) @binding(0) var<storage, read> moments: array<vec2<f32>>;     // [rows, parts]
@group(0) @binding(1) var<storage, read_write> stats: array<vec2<f32>>; // [rows]
@group(0) @binding(2) var<uniform> p: Params;

struct Params { rows: u32, width: u32, parts: u32, eps: f32 }

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let row = flat_index(id, groups);
    if (row >= p.rows) { return; }
    var total = moments[row * p.parts];
    var count = f32((p.width + p.parts - 1u) / p.parts);
    for (var part = 1u; part < p.parts; part++) {
        let other = moments[row * p.parts + part];
        let more = f32((p.width - part + p.parts - 1u) / p.parts);
        let apart = other.x - total.x;
        let share = more / (count + more);
        total += vec2<f32>(apart * share, other.y + apart * apart * count * share);
        count += more;
    }
    stats[row] = vec2<f32>(total.x, inverseSqrt(total.y / f32(p.width) + p.eps));
}
