// Increase the number of the call.
@group(0) @binding(0) var<storage, read_write> counter: array<i32>;  // [2]
@group(0) @binding(1) var<uniform> p: Params;

struct Params { by: i32 }

@compute @workgroup_size(1)
fn main() { counter[0] += p.by; }
