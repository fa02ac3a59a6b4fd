// y = x, sampled at the positions of a grid. The coordinates -1 and 1 are the borders of the image.
@group(0) @binding(0) var<storage, read> x: array<x_word>;        // [batch, channels, in_height, in_width]
@group(0) @binding(1) var<storage, read> grid: array<grid_word>;  // [batch, height, width, (x, y)]
@group(0) @binding(2) var<storage, read_write> y: array<y_word>;  // [batch, channels, height, width]
@group(0) @binding(3) var<uniform> p: Params;

struct Params { quads: u32, channels: u32, in_height: u32, in_width: u32, positions: u32 }

const BILINEAR = 0u;
const NEAREST = 1u;
const BICUBIC = 2u;
const ZEROS = 0u;
const BORDER = 1u;
const REFLECTION = 2u;

// Convert a coordinate from -1 .. 1 to elements. -1 and 1 are the centres of the outermost elements
// (ALIGN_CORNERS), or their outer edges.
fn in_elements(place: f32, size: f32) -> f32 {
    if (ALIGN_CORNERS) { return (place + 1.0) * 0.5 * (size - 1.0); }
    return ((place + 1.0) * size - 1.0) * 0.5;
}

// Reflect a coordinate into the image, at the outermost centres or edges.
fn reflected(at: f32, size: f32) -> f32 {
    let low = select(-0.5, 0.0, ALIGN_CORNERS);
    let span = select(size, size - 1.0, ALIGN_CORNERS);
    if (span <= 0.0) { return 0.0; }
    let away = abs(at - low);
    let flips = floor(away / span);
    let rest = away - flips * span;
    return low + select(rest, span - rest, i32(flips) % 2 == 1);
}

// The coordinate that is read for a coordinate outside of the image. `element` returns zeros for padding with
// zeros.
fn padded(at: f32, size: f32) -> f32 {
    if (PADDING == ZEROS) { return at; }
    return clamp(select(at, reflected(at, size), PADDING == REFLECTION), 0.0, size - 1.0);
}

fn element(plane: u32, at: vec2<f32>) -> f32 {
    let size = vec2<f32>(f32(p.in_width), f32(p.in_height));
    if (any(at < vec2<f32>(0.0)) || any(at >= size)) { return 0.0; }
    return f32(x_at(plane + u32(at.y) * p.in_width + u32(at.x)));
}

fn bilinear(plane: u32, at: vec2<f32>) -> f32 {
    let low = floor(at);
    let t = at - low;
    let top = mix(element(plane, low), element(plane, low + vec2<f32>(1.0, 0.0)), t.x);
    let bottom = mix(element(plane, low + vec2<f32>(0.0, 1.0)), element(plane, low + vec2<f32>(1.0, 1.0)), t.x);
    return mix(top, bottom, t.y);
}

// The weights of four neighbours at distances 1 + t, t, 1 - t and 2 - t: the cubic convolution kernel with a
// = -0.75.
fn cubic(t: f32) -> vec4<f32> {
    let near = vec2<f32>(t, 1.0 - t);
    let far = near + 1.0;
    let inner = (1.25 * near - 2.25) * near * near + 1.0;
    let outer = ((-0.75 * far + 3.75) * far - 6.0) * far + 3.0;
    return vec4<f32>(outer.x, inner.x, inner.y, outer.y);
}

// For bicubic interpolation, padding applies to each of the neighbours, not to the sampled position.
fn neighbour(plane: u32, at: vec2<f32>) -> f32 {
    return element(plane, vec2<f32>(padded(at.x, f32(p.in_width)), padded(at.y, f32(p.in_height))));
}

fn bicubic(plane: u32, at: vec2<f32>) -> f32 {
    let low = floor(at);
    let across = cubic(at.x - low.x);
    let down = cubic(at.y - low.y);
    var sum = 0.0;
    for (var j = 0u; j < 4u; j++) {
        for (var i = 0u; i < 4u; i++) {
            let offset = vec2<f32>(f32(i) - 1.0, f32(j) - 1.0);
            sum += down[j] * across[i] * neighbour(plane, low + offset);
        }
    }
    return sum;
}

fn value(i: u32) -> y_t {
    let plane = i / p.positions * p.in_height * p.in_width;
    let place = 2u * (i / (p.positions * p.channels) * p.positions + i % p.positions);
    let size = vec2<f32>(f32(p.in_width), f32(p.in_height));
    let at = vec2<f32>(in_elements(f32(grid_at(place)), size.x), in_elements(f32(grid_at(place + 1u)), size.y));
    if (INTERPOLATION == BICUBIC) { return y_t(bicubic(plane, at)); }
    let inside = vec2<f32>(padded(at.x, size.x), padded(at.y, size.y));
    if (INTERPOLATION == NEAREST) { return y_t(element(plane, round(inside))); }
    return y_t(bilinear(plane, inside));
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.quads) { return; }
    y_put(i, y_t4(value(4u * i), value(4u * i + 1u), value(4u * i + 2u), value(4u * i + 3u)));
}
