// The maximum of a part of each row of logits, and the sum of exponentials relative to it. A row has PARTS
// invocations: each reads every PARTS-th logit.
@group(0) @binding(0) var<storage, read> logits: array<logits_word>;      // [rows, width]
@group(0) @binding(1) var<storage, read_write> parts: array<vec2<f32>>;   // [rows, PARTS]
@group(0) @binding(2) var<uniform> p: Params;

struct Params { rows: u32, width: u32 }

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.rows * PARTS) { return; }
    let first = (i / PARTS) * p.width;
    // In a row with fewer than PARTS logits, some invocations have none. They read another logit and do not
    // count it.
    let start = i % PARTS;
    var top = f32(logits_at(first + min(start, p.width - 1u)));
    for (var k = start; k < p.width; k += PARTS) { top = max(top, f32(logits_at(first + k))); }
    var sum = 0.0;
    for (var k = start; k < p.width; k += PARTS) { sum += exp(f32(logits_at(first + k)) - top); }
    parts[i] = vec2<f32>(top, sum);
}
