// The mean of a part of a row, and the sum of squared distances from the mean. A row has `parts` parts. A
// part is every parts-th element, so neighbouring invocations read neighbouring elements. The sum of many
// elements far from zero is rounded by much, and so is their mean. The sum of the distances corrects both.
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
    let count = f32((p.width - i % p.parts + p.parts - 1u) / p.parts);
    let mean = sum / count;
    var distances = 0.0;
    var squares = 0.0;
    for (var k = i % p.parts; k < p.width; k += p.parts) {
        let away = f32(x_at(first + k)) - mean;
        distances += away;
        squares += away * away;
    }
    let correction = distances / count;
    moments[i] = vec2<f32>(mean + correction, squares - distances * correction);
}
