// Copy x to a slice of y along one dimension, in whole quads. One invocation copies one quad.
@group(0) @binding(0) var<storage, read> x: array<x_word>;        // [outer, run]
@group(0) @binding(1) var<storage, read_write> y: array<y_word>;  // [outer, total]
@group(0) @binding(2) var<uniform> p: Params;

struct Params { quads: u32, run: u32, total: u32, start: u32 }  // all in quads

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.quads) { return; }
    let outer = i / p.run;
    y_put(outer * p.total + p.start + i - outer * p.run, y_t4(x_quad(i)));
}
