// y = whether all elements of a and b are close. By one workgroup, in float32 like torch.
@group(0) @binding(0) var<storage, read> a: array<a_word>;        // [sizes..] at a_strides
@group(0) @binding(1) var<storage, read> b: array<b_word>;        // [sizes..] at b_strides
@group(0) @binding(2) var<storage, read_write> y: array<y_word>;  // one element
@group(0) @binding(3) var<uniform> p: Params;

struct Params {
    count: u32,
    rtol: f32,
    atol: f32,
    equal_nan: u32,
    rank: u32,
    sizes: array<vec4<u32>, 2>,
    a_strides: array<vec4<u32>, 2>,
    b_strides: array<vec4<u32>, 2>,
}

var<workgroup> far: atomic<u32>;  // how many lanes found elements that are not close

fn close_at(i: u32) -> bool {
    var rest = i;
    var a_index = 0u;
    var b_index = 0u;
    for (var d = p.rank; d > 0u; d--) {
        let word = (d - 1u) >> 2u;
        let part = (d - 1u) & 3u;
        let at = rest % p.sizes[word][part];
        a_index += at * p.a_strides[word][part];
        b_index += at * p.b_strides[word][part];
        rest /= p.sizes[word][part];
    }
    let left = a_at(a_index);
    let right = b_at(b_index);
    if (left == right) { return true; }
    if (is_nan(f32(left)) || is_nan(f32(right))) {
        return p.equal_nan != 0u && is_nan(f32(left)) && is_nan(f32(right));
    }
    if (p.rtol == 0.0 && p.atol == 0.0) { return false; }  // also for integers that float32 rounds to the same
    let distance = abs(f32(left) - f32(right));
    return !is_inf(distance) && distance <= p.atol + abs(p.rtol * f32(right));
}

@compute @workgroup_size(LANES)
fn main(@builtin(local_invocation_index) lane: u32) {
    if (lane == 0u) { atomicStore(&far, 0u); }
    workgroupBarrier();
    var close = true;
    for (var i = lane; close && i < p.count; i += LANES) { close = close_at(i); }
    if (!close) { atomicAdd(&far, 1u); }
    workgroupBarrier();
    if (lane == 0u) { y_put(0u, y_t4(y_t(atomicLoad(&far) == 0u))); }
}
