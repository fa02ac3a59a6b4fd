// Unfold images for conv_rows: row r of y has the inputs under the window at position r. Padding is stored as
// zeros. One invocation computes SPAN quads of a row. It divides once, and then steps from input to input:
// software adapters divide slowly.
@group(0) @binding(0) var<storage, read> x: array<x_word>;        // [batch, channels, input..]
@group(0) @binding(1) var<storage, read_write> y: array<y_word>;  // [batch * output.., channels * kernel..]
@group(0) @binding(2) var<uniform> p: Params;

struct Params {
    rows: u32,
    channels: u32,
    quads: u32,  // of a row
    input: vec3<u32>,
    output: vec3<u32>,
    kernel: vec3<u32>,
    stride: vec3<i32>,
    padding: vec3<i32>,
    dilation: vec3<i32>,
}

fn parts(i: u32, sizes: vec3<u32>) -> vec3<i32> {
    return vec3<i32>(vec3<u32>(i / (sizes.y * sizes.z), i / sizes.z % sizes.y, i % sizes.z));
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let spans = (p.quads + SPAN - 1u) / SPAN;
    let i = flat_index(id, groups);
    let row = i / spans;
    if (row >= p.rows) { return; }
    let first = i % spans * SPAN;
    let positions = p.output.x * p.output.y * p.output.z;
    let taps = p.kernel.x * p.kernel.y * p.kernel.z;
    let size = vec3<i32>(p.input);
    let last = vec3<i32>(p.kernel) - 1;
    let corner = parts(row % positions, p.output) * p.stride - p.padding;
    var tap = parts(4u * first % taps, p.kernel);
    var plane = i32(row / positions * p.channels + 4u * first / taps);
    for (var quad = first; quad < min(first + SPAN, p.quads); quad++) {
        var four = vec4<f32>();
//#each n 4
        let at = corner + tap * p.dilation;
        let inside = all(at >= vec3<i32>(0)) && all(at < size);
        let index = ((plane * size.x + at.x) * size.y + at.y) * size.z + at.z;
        four[n] = select(0.0, f32(x_at(u32(select(0, index, inside)))), inside);
        let ends = tap == last;
        let row_ends = ends.z;
        let sheet_ends = row_ends && ends.y;
        let plane_ends = sheet_ends && ends.x;
        tap = vec3<i32>(
            select(tap.x + select(0, 1, sheet_ends), 0, plane_ends),
            select(tap.y + select(0, 1, row_ends), 0, sheet_ends),
            select(tap.z + 1, 0, row_ends),
        );
        plane += select(0, 1, plane_ends);
//#end n
        y_put(row * p.quads + quad, y_t4(four));
    }
}
