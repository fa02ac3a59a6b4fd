// y = requantised (a + alpha * b), with numpy's broadcasting.
@group(0) @binding(0) var<storage, read> a: array<a_word>;        // broadcast to [sizes..]
@group(0) @binding(1) var<storage, read> b: array<b_word>;        // broadcast to [sizes..]
@group(0) @binding(2) var<storage, read_write> y: array<y_word>;  // [sizes..]
@group(0) @binding(3) var<uniform> p: Params;

struct Params {
    quads: u32,
    rank: u32,
    a_scale: f32,
    a_zero: f32,
    b_scale: f32,
    b_zero: f32,
    alpha: f32,
    out_inverse: f32,
    out_zero: f32,
    zero: u32,  // always 0, but the compiler does not know it
    sizes: array<vec4<u32>, 2>,
    a_strides: array<vec4<u32>, 2>,
    b_strides: array<vec4<u32>, 2>,
}

//#include broadcast
//#include requantize

// Sums of products are often exactly halfway between two quantised values. If a compiler fused a product and
// a sum into one operation, the result could be rounded differently than in torch. This function prevents the
// fusion.
fn rounded(v: vec4<f32>) -> vec4<f32> {
    return bitcast<vec4<f32>>(bitcast<vec4<u32>>(v) ^ vec4<u32>(p.zero));
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.quads) { return; }
    var u = vec4<f32>(0.0);
    var v = vec4<f32>(0.0);
    for (var c = 0u; c < 4u; c++) {
        u[c] = f32(a_at(operand_index(4u * i + c, p.a_strides)));
        v[c] = f32(b_at(operand_index(4u * i + c, p.b_strides)));
    }
    u = rounded((u - p.a_zero) * p.a_scale);
    v = rounded(p.alpha * ((v - p.b_zero) * p.b_scale));
    y_put(i, y_t4(requantize(u + v)));
}
