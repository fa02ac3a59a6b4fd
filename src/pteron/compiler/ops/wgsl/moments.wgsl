// The mean of a part of a row, and the sum of squared distances from the mean. A row has `parts` parts. A
// part is every parts-th element, so neighbouring invocations read neighbouring elements.
@group(0) @binding(0) var<storage, read> x: array<x_word>;                // [rows, width]
@group(0) @binding(1) var<storage, read_write> moments: array<vec2<f32>>; // [rows, parts]
@group(0) @binding(2) var<uniform> p: Params;

struct Params { rows: u32, width: u32, parts: u32 }

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.rows * p.parts) { return; }
    let first = i / p.parts * p.width;
    var sum = 0.0;
    for (var k = i % p.parts; k < p.width; k += p.parts) { sum += f32(x_at(first + k)); }
    let mean = sum / f32((p.width - i % p.parts + p.parts - 1u) / p.parts);
    var squares = 0.0;
    for (var k = i % p.parts; k < p.width; k += p.parts) {
        let away = f32(x_at(first + k)) - mean;
        squares += away * away;
    }
    moments[i] = vec2<f32>(mean, squares);
}
