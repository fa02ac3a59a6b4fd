// One factor of a Hadamard transform: each element of y is a sum of `factor` elements of x, with signs.
@group(0) @binding(0) var<storage, read> x: array<x_word>;        // [rows, size of a transform]
@group(0) @binding(1) var<storage, read_write> y: array<y_word>;  // as x
@group(0) @binding(2) var<uniform> p: Params;

struct Params { quads: u32, factor: u32, stride: u32, scale: f32 }

fn value(i: u32) -> f32 {
    let row = (i / p.stride) % p.factor;
    let first = i - row * p.stride;
    var sum = 0.0;
    for (var column = 0u; column < p.factor; column++) {
        let term = f32(x_at(first + column * p.stride));
        sum += select(term, -term, negative(row, column));
    }
    return sum * p.scale;
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.quads) { return; }
    y_put(i, y_t4(vec4<f32>(value(4u * i), value(4u * i + 1u), value(4u * i + 2u), value(4u * i + 3u))));
}
