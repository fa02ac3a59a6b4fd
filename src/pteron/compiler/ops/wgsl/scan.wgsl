// y = the running sum (or product) of x along one dimension. One invocation computes one row. The rule supplies
// `element`, which converts an element of x, and `merge`.
@group(0) @binding(0) var<storage, read> x: array<x_word>;        // [outer, width, inner]
@group(0) @binding(1) var<storage, read_write> y: array<y_word>;  // [outer, width, inner], of whole words
@group(0) @binding(2) var<uniform> p: Params;

struct Params { rows: u32, width: u32, inner: u32 }

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let row = flat_index(id, groups);
    if (row >= p.rows) { return; }
    var at = (row / p.inner) * p.width * p.inner + row % p.inner;
    var total: y_t;
    for (var k = 0u; k < p.width; k++) {
        let value = element(x_at(at));
        if (k == 0u) { total = value; } else { total = merge(total, value); }
        y_set(at, total);
        at += p.inner;
    }
}
