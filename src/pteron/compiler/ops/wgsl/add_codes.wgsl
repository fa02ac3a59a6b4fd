// y = (a * a_factor + b * b_factor + offset) >> shift, plus a zero point, in integers, with numpy's broadcasting.
@group(0) @binding(0) var<storage, read> a: array<a_word>;        // broadcast to [sizes..]
@group(0) @binding(1) var<storage, read> b: array<b_word>;        // broadcast to [sizes..]
@group(0) @binding(2) var<storage, read_write> y: array<y_word>;  // [sizes..]
@group(0) @binding(3) var<uniform> p: Params;

struct Params {
    quads: u32,
    rank: u32,
    a_factor: i32,
    b_factor: i32,
    offset: i32,
    shift: u32,
    out_zero: i32,
    sizes: array<vec4<u32>, 2>,
    a_strides: array<vec4<u32>, 2>,
    b_strides: array<vec4<u32>, 2>,
}

//#include broadcast

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.quads) { return; }
    var sum = vec4<i32>(p.offset);
    for (var c = 0u; c < 4u; c++) {
        sum[c] += a_at(operand_index(4u * i + c, p.a_strides)) * p.a_factor;
        sum[c] += b_at(operand_index(4u * i + c, p.b_strides)) * p.b_factor;
    }
    y_put(i, y_t4(clamp((sum >> vec4<u32>(p.shift)) + p.out_zero, vec4<i32>(-128), vec4<i32>(127))));
}
