// The input elements of each output element, along each of three spatial dimensions.
struct Params {
    quads: u32,
    divisor: u32,  // 0: divide by the number of elements
    lowest: u32,   // the bits of the lowest value, which is the maximum of an empty window
    input: vec3<u32>,
    output: vec3<u32>,
    kernel: vec3<i32>,
    stride: vec3<i32>,
    padding: vec3<i32>,
    dilation: vec3<i32>,
}

// One window: the elements first, first + step, .. before last. `size` includes padding.
struct Window { first: vec3<i32>, last: vec3<i32>, step: vec3<i32>, size: i32 }

fn window(i: u32) -> Window {
    let at = vec3<u32>(
        i / (p.output.y * p.output.z) % p.output.x,
        i / p.output.z % p.output.y,
        i % p.output.z,
    );
    let whole = vec3<i32>(p.input);
    if (ADAPTIVE) {
        let first = vec3<i32>(at * p.input / p.output);
        let last = vec3<i32>(((at + 1u) * p.input + p.output - 1u) / p.output);
        return Window(first, last, vec3<i32>(1), volume(last - first));
    }
    let first = vec3<i32>(at) * p.stride - p.padding;
    let last = min(first + (p.kernel - 1) * p.dilation + 1, whole + p.padding);
    // The first window element that is not padding.
    let inside = first + (max(-first, vec3<i32>(0)) + p.dilation - 1) / p.dilation * p.dilation;
    return Window(inside, min(last, whole), p.dilation, volume(last - first));
}

fn volume(size: vec3<i32>) -> i32 { return size.x * size.y * size.z; }

// The first element of the input plane that output element `i` belongs to.
fn plane(i: u32) -> u32 {
    return i / (p.output.x * p.output.y * p.output.z) * (p.input.x * p.input.y * p.input.z);
}

fn place(d: i32, h: i32, w: i32) -> u32 { return u32((d * i32(p.input.y) + h) * i32(p.input.z) + w); }
