// y = x, word by word, for every dtype.
@group(0) @binding(0) var<storage, read> x: array<u32>;        // words
@group(0) @binding(1) var<storage, read_write> y: array<u32>;  // words
@group(0) @binding(2) var<uniform> p: Params;

struct Params { words: u32 }

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.words) { return; }
    y[i] = x[i];
}
