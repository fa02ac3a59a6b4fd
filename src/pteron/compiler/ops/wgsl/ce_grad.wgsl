// The gradient of the loss with respect to the logits: (softmax - (1 at the label, 0 elsewhere)) / n_valid.
@group(0) @binding(0) var<storage, read> logits: array<logits_word>;    // [rows, width]
@group(0) @binding(1) var<storage, read> labels: array<labels_word>;    // [rows]; negative: the row does not count
@group(0) @binding(2) var<storage, read> stats: array<vec4<f32>>;       // [rows]: maximum, sum, loss
@group(0) @binding(3) var<storage, read_write> y: array<y_word>;        // [rows, width]
@group(0) @binding(4) var<uniform> p: Params;

struct Params { rows: u32, width: u32, n_valid: f32 }

fn value(i: u32) -> f32 {
    let row = min(i / p.width, p.rows - 1u);
    let label = i32(labels_at(row));
    if (label < 0) { return 0.0; }
    let softmax = exp(f32(logits_at(i)) - stats[row].x) / stats[row].y;
    return (softmax - select(0.0, 1.0, i % p.width == u32(label))) / p.n_valid;
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (4u * i >= p.rows * p.width) { return; }
    y_put(i, y_t4(vec4<f32>(value(4u * i), value(4u * i + 1u), value(4u * i + 2u), value(4u * i + 3u))));
}
