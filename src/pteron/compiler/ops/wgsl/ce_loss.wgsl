// The loss: the sum over the rows. One invocation is enough, because there are few rows.
@group(0) @binding(0) var<storage, read> stats: array<vec4<f32>>;       // [rows]: maximum, sum, loss
@group(0) @binding(1) var<storage, read_write> loss: array<loss_word>;  // [1]
@group(0) @binding(2) var<uniform> p: Params;

struct Params { rows: u32 }

@compute @workgroup_size(1)
fn main() {
    var sum = 0.0;
    for (var row = 0u; row < p.rows; row++) { sum += stats[row].z; }
    loss_put(0u, loss_t4(vec4<f32>(sum)));
}
