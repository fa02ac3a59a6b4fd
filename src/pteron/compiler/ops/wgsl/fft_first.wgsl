// The first half of a Fourier transform of n = a * b elements: a transforms of b elements each, whose results
// are turned. parts[j][k] = turn(j k / n) * the sum over l of x[a l + j] * turn(k l / b).
//#if REAL
@group(0) @binding(0) var<storage, read> x: array<f32>;                  // [outer, held, inner]
//#else
@group(0) @binding(0) var<storage, read> x: array<vec2<f32>>;            // [outer, held, inner]
//#end
@group(0) @binding(1) var<storage, read> turns: array<vec2<f32>>;        // [n]
@group(0) @binding(2) var<storage, read_write> parts: array<vec2<f32>>;  // [outer, a, b, inner]
@group(0) @binding(3) var<uniform> p: Params;

struct Params { count: u32, held: u32, inner: u32, a: u32, b: u32 }

fn product(u: vec2<f32>, v: vec2<f32>) -> vec2<f32> {
    return vec2<f32>(u.x * v.x - u.y * v.y, u.x * v.y + u.y * v.x);
}

// If HERMITIAN, only elements 0 .. n/2 are held. The others are conjugates of these.
fn element(outer: u32, j: u32, inner: u32) -> vec2<f32> {
    let n = p.a * p.b;
    let mirrored = HERMITIAN && 2u * j > n;
    let at = (outer * p.held + select(j, n - j, mirrored)) * p.inner + inner;
//#if REAL
    return vec2<f32>(x[at], 0.0);
//#else
    if (HERMITIAN && (j == 0u || 2u * j == n)) { return vec2<f32>(x[at].x, 0.0); }
    return x[at] * vec2<f32>(1.0, select(1.0, -1.0, mirrored));
//#end
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.count) { return; }
    let inner = i % p.inner;
    let k = i / p.inner % p.b;
    let j = i / p.inner / p.b % p.a;
    let outer = i / p.inner / p.b / p.a;
    var sum = vec2<f32>();
    var turn = 0u;  // k l modulo b
    for (var l = 0u; l < p.b; l++) {
        sum += product(element(outer, p.a * l + j, inner), turns[turn * p.a]);
        turn += k;
        if (turn >= p.b) { turn -= p.b; }
    }
    parts[i] = product(sum, turns[j * k]);
}
