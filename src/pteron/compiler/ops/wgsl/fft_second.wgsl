// The second half of a Fourier transform of n = a * b elements: b transforms of a elements each.
// y[k + b l] = scale * the sum over j of parts[j][k] * turn(j l / a), for the first `kept` elements.
@group(0) @binding(0) var<storage, read> parts: array<vec2<f32>>;    // [outer, a, b, inner]
@group(0) @binding(1) var<storage, read> turns: array<vec2<f32>>;    // [n]
//#if REAL
@group(0) @binding(2) var<storage, read_write> y: array<f32>;        // [outer, kept, inner]
//#else
@group(0) @binding(2) var<storage, read_write> y: array<vec2<f32>>;  // [outer, kept, inner]
//#end
@group(0) @binding(3) var<uniform> p: Params;

struct Params { count: u32, kept: u32, inner: u32, a: u32, b: u32, scale: f32 }

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.count) { return; }
    let inner = i % p.inner;
    let k = i / p.inner % p.kept % p.b;
    let l = i / p.inner % p.kept / p.b;
    let outer = i / p.inner / p.kept;
    var sum = vec2<f32>();
    var turn = 0u;  // j l modulo a
    for (var j = 0u; j < p.a; j++) {
        let u = parts[((outer * p.a + j) * p.b + k) * p.inner + inner];
        let v = turns[turn * p.b];
        sum += vec2<f32>(u.x * v.x - u.y * v.y, u.x * v.y + u.y * v.x);
        turn += l;
        if (turn >= p.a) { turn -= p.a; }
    }
//#if REAL
    y[i] = p.scale * sum.x;
//#else
    y[i] = p.scale * sum;
//#end
}
