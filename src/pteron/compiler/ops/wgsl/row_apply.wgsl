// y = apply(x, the statistics of its row, its weight). One invocation writes one quad of y, for any width and
// dtype. The rule supplies `apply`. If there is no weight, x is bound as `weight` and not read.
@group(0) @binding(0) var<storage, read> x: array<x_word>;            // [outer, width, inner]
@group(0) @binding(1) var<storage, read> stats: array<vec2<f32>>;     // [outer * inner]
@group(0) @binding(2) var<storage, read> weight: array<weight_word>;  // [width]
@group(0) @binding(3) var<storage, read_write> y: array<y_word>;      // [outer, width, inner]
@group(0) @binding(4) var<uniform> p: Params;

struct Params { quads: u32, width: u32, inner: u32 }

fn value(i: u32) -> y_t {
    let row = (i / (p.width * p.inner)) * p.inner + i % p.inner;
    var w = 1.0;
    if (HAS_WEIGHT) { w = f32(weight_at((i / p.inner) % p.width)); }
    return y_t(apply(f32(x_at(i)), stats[row], w));
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.quads) { return; }
    y_put(i, y_t4(value(4u * i), value(4u * i + 1u), value(4u * i + 2u), value(4u * i + 3u)));
}
