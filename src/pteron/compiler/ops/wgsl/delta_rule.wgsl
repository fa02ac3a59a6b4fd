// The gated delta rule, token after token. One invocation computes one column of the matrix of a head.
@group(0) @binding(0) var<storage, read> query: array<f32>;        // [B, H * groups, length, depth]
@group(0) @binding(1) var<storage, read> key: array<f32>;          // [B, H, length, depth]
@group(0) @binding(2) var<storage, read> value: array<f32>;        // [B, H, length, width]
@group(0) @binding(3) var<storage, read> decay: array<f32>;        // [B, H, length], or with depth
@group(0) @binding(4) var<storage, read> beta: array<f32>;         // [B, H, length]
@group(0) @binding(5) var<storage, read> state: array<f32>;        // [B, H, depth, width]
@group(0) @binding(6) var<storage, read_write> y: array<f32>;      // [B, H * groups, length, width]
@group(0) @binding(7) var<storage, read_write> after: array<f32>;  // [B, H, depth, width]
@group(0) @binding(8) var<uniform> p: Params;

struct Params { columns: u32, length: u32, depth: u32, width: u32, groups: u32 }

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.columns) { return; }
    let head = i / p.width;
    let column = i % p.width;
    let first = head * p.depth * p.width + column;
    for (var k = 0u; k < p.depth; k++) { after[first + k * p.width] = state[first + k * p.width]; }
    for (var t = 0u; t < p.length; t++) {
        let row = head * p.length + t;
        var known = 0.0;
        for (var k = 0u; k < p.depth; k++) {
            let at = row * p.depth + k;
            let kept = after[first + k * p.width] * decay[select(row, at, PER_CHANNEL)];
            after[first + k * p.width] = kept;
            known += kept * key[at];
        }
        let change = beta[row] * (value[row * p.width + column] - known);
        for (var k = 0u; k < p.depth; k++) {
            after[first + k * p.width] += key[row * p.depth + k] * change;
        }
        for (var g = 0u; g < p.groups; g++) {
            let asked = (head * p.groups + g) * p.length + t;
            var sum = 0.0;
            for (var k = 0u; k < p.depth; k++) {
                sum += after[first + k * p.width] * query[asked * p.depth + k];
            }
            y[asked * p.width + column] = sum;
        }
    }
}
