// y[i0, i1, ..] = x[offset + i0*stride0 + i1*stride1 + ..] for quads: permute, slice and expand of whole rows.
@group(0) @binding(0) var<storage, read> x: array<x_word>;        // at offset and strides, in quads
@group(0) @binding(1) var<storage, read_write> y: array<y_word>;  // [sizes..], in quads
@group(0) @binding(2) var<uniform> p: Params;

struct Params {
    runs: u32,
    run: u32,  // quads of an invocation
    rank: u32,
    offset: i32,
    sizes: array<vec4<u32>, 2>,    // in runs
    strides: array<vec4<i32>, 2>,  // from one run to the next, in quads
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.runs) { return; }
    var rest = i;
    var index = p.offset;
    for (var d = p.rank; d > 0u; d--) {
        let size = p.sizes[(d - 1u) >> 2u][(d - 1u) & 3u];
        let above = rest / size;
        index += i32(rest - above * size) * p.strides[(d - 1u) >> 2u][(d - 1u) & 3u];
        rest = above;
    }
    for (var n = 0u; n < p.run; n++) { y_put(i * p.run + n, y_t4(x_quad(u32(index) + n))); }
}
