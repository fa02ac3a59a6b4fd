// The largest element of each window; the first one if several are equal. NaN is larger than all numbers.
@group(0) @binding(0) var<storage, read> x: array<x_word>;        // [planes, input..]
@group(0) @binding(1) var<storage, read_write> y: array<y_word>;  // [planes, output..]
@group(0) @binding(2) var<uniform> p: Params;
//#include pool
//#include max_pool

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.quads) { return; }
    let a = output_of(4u * i);
    let b = next(a);
    let c = next(b);
    let d = next(c);
    y_put(i, y_t4(
        y_t(largest(a).value), y_t(largest(b).value), y_t(largest(c).value), y_t(largest(d).value),
    ));
}
