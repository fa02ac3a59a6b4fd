// The gradient of maximum pooling: for each element, the sum of the gradients of all windows whose maximum it
// was.
@group(0) @binding(0) var<storage, read> grad: array<grad_word>;  // [planes, output..]
@group(0) @binding(1) var<storage, read> indices: array<i32>;     // [planes, output..], places in a plane
@group(0) @binding(2) var<storage, read_write> y: array<y_word>;  // [planes, input..]
@group(0) @binding(3) var<uniform> p: Params;

struct Params {
    quads: u32,
    input: vec3<u32>,
    output: vec3<u32>,
    kernel: vec3<u32>,
    stride: vec3<u32>,
    padding: vec3<u32>,
    dilation: vec3<u32>,
}

// The first window that can contain a position, and the end of the range of such windows.
fn windows(place: u32, d: u32) -> vec2<u32> {
    let right = place + p.padding[d];
    let reach = (p.kernel[d] - 1u) * p.dilation[d];
    let first = select(0u, (right - reach + p.stride[d] - 1u) / p.stride[d], right > reach);
    return vec2<u32>(first, min(right / p.stride[d] + 1u, p.output[d]));
}

fn gradient(i: u32) -> y_t {
    let area = p.input.y * p.input.z;
    let place = i % area;
    let rows = windows(place / p.input.z, 1u);
    let columns = windows(place % p.input.z, 2u);
    let plane = i / area * p.output.y * p.output.z;
    var sum = 0.0;
    for (var row = rows.x; row < rows.y; row++) {
        for (var column = columns.x; column < columns.y; column++) {
            let at = plane + row * p.output.z + column;
            if (u32(indices[at]) == place) { sum += f32(grad_at(at)); }
        }
    }
    return y_t(sum);
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.quads) { return; }
    y_put(i, y_t4(gradient(4u * i), gradient(4u * i + 1u), gradient(4u * i + 2u), gradient(4u * i + 3u)));
}
