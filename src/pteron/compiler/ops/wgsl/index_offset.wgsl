// Add one of several index tensors to the offsets into x.
@group(0) @binding(0) var<storage, read> index: array<index_word>;   // broadcast to [sizes..]
@group(0) @binding(1) var<storage, read_write> offsets: array<i32>;  // [sizes..]
@group(0) @binding(2) var<uniform> p: Params;

struct Params {
    count: u32,
    rank: u32,
    length: u32,
    stride: u32,
    sizes: array<vec4<u32>, 2>,
    index_strides: array<vec4<u32>, 2>,
}

//#include broadcast
//#include wrap

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.count) { return; }
    let offset = i32(wrap(i32(index_at(operand_index(i, p.index_strides))), p.length) * p.stride);
    if (IS_FIRST) { offsets[i] = offset; } else { offsets[i] += offset; }
}
