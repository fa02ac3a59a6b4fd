// The largest element of each window, and its index in its plane.
@group(0) @binding(0) var<storage, read> x: array<x_word>;                    // [planes, input..]
@group(0) @binding(1) var<storage, read_write> y: array<y_word>;              // [planes, output..]
@group(0) @binding(2) var<storage, read_write> indices: array<indices_word>;  // [planes, output..]
@group(0) @binding(3) var<uniform> p: Params;
//#include pool
//#include max_pool

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.quads) { return; }
    let first = output_of(4u * i);
    let second = next(first);
    let third = next(second);
    let a = largest(first);
    let b = largest(second);
    let c = largest(third);
    let d = largest(next(third));
    y_put(i, y_t4(y_t(a.value), y_t(b.value), y_t(c.value), y_t(d.value)));
    indices_put(i, indices_t4(vec4<u32>(a.index, b.index, c.index, d.index)));
}
