// y = the conjugates of complex elements.
@group(0) @binding(0) var<storage, read> x: array<vec2<f32>>;        // [count]
@group(0) @binding(1) var<storage, read_write> y: array<vec2<f32>>;  // [count]
@group(0) @binding(2) var<uniform> p: Params;

struct Params { count: u32 }

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.count) { return; }
    y[i] = x[i] * vec2<f32>(1.0, -1.0);
}
