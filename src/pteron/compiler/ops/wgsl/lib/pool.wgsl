// The input elements of each output element, along each of three spatial dimensions.
struct Params {
    quads: u32,
    divisor: i32,  // 0: divide by the number of elements
    lowest: u32,   // the bits of the lowest value, which is the maximum of an empty window
    input: vec3<u32>,
    output: vec3<u32>,
    kernel: vec3<i32>,
    stride: vec3<i32>,
    padding: vec3<i32>,
    dilation: vec3<i32>,
}

// One output element: the first element of its input plane, and its place in its own plane.
struct Output { plane: u32, at: vec3<u32> }

fn output_of(i: u32) -> Output {
    let planes = i / (p.output.x * p.output.y * p.output.z);
    let at = vec3<u32>(i / (p.output.y * p.output.z) % p.output.x, i / p.output.z % p.output.y, i % p.output.z);
    return Output(planes * p.input.x * p.input.y * p.input.z, at);
}

// The neighbour of an element. Software adapters divide slowly, so only the first element of a quad does.
fn next(o: Output) -> Output {
    let row_ends = o.at.z + 1u == p.output.z;
    let sheet_ends = row_ends && o.at.y + 1u == p.output.y;
    let plane_ends = sheet_ends && o.at.x + 1u == p.output.x;
    return Output(
        o.plane + select(0u, p.input.x * p.input.y * p.input.z, plane_ends),
        vec3<u32>(
            select(o.at.x + select(0u, 1u, sheet_ends), 0u, plane_ends),
            select(o.at.y + select(0u, 1u, row_ends), 0u, sheet_ends),
            select(o.at.z + 1u, 0u, row_ends),
        ),
    );
}

// One window: the elements first, first + step, .. before last. `size` includes padding.
struct Window { first: vec3<i32>, last: vec3<i32>, step: vec3<i32>, size: i32 }

fn window(at: vec3<u32>) -> Window {
    let whole = vec3<i32>(p.input);
    if (ADAPTIVE) {
        let first = vec3<i32>(at * p.input / p.output);
        let last = vec3<i32>(((at + 1u) * p.input + p.output - 1u) / p.output);
        return Window(first, last, vec3<i32>(1), volume(last - first));
    }
    let first = vec3<i32>(at) * p.stride - p.padding;
    let last = min(first + (p.kernel - 1) * p.dilation + 1, whole + p.padding);
    // The first window element that is not padding. Half an element less gives the same number of steps, also if
    // the quotient is not exact.
    let steps = ceil((vec3<f32>(max(-first, vec3<i32>(0))) - 0.5) / vec3<f32>(p.dilation));
    let inside = first + vec3<i32>(steps) * p.dilation;
    return Window(inside, min(last, whole), p.dilation, volume(last - first));
}

fn volume(size: vec3<i32>) -> i32 { return size.x * size.y * size.z; }

fn place(d: i32, h: i32, w: i32) -> u32 { return u32((d * i32(p.input.y) + h) * i32(p.input.z) + w); }
