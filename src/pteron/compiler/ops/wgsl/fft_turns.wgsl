// The n-th parts of a turn: y[m] = e^(i sign 2 pi m / n).
@group(0) @binding(0) var<storage, read_write> y: array<vec2<f32>>;  // [n]
@group(0) @binding(1) var<uniform> p: Params;

struct Params { n: u32, sign: f32 }

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let m = flat_index(id, groups);
    if (m >= p.n) { return; }
    // The nearest quarter turn is found in integers, so that the rest has no rounding but its own.
    let quarter = (8u * m + p.n) / (2u * p.n);
    let rest = 1.5707963267948966 * f32(i32(4u * m) - i32(quarter * p.n)) / f32(p.n);
    let at = Angle(rest, quarter);
    y[m] = vec2<f32>(sine_at(at, 1u), p.sign * sine_at(at, 0u));
}
