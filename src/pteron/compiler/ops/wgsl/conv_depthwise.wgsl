// Convolution with one filter per channel. One invocation computes four columns of a band of rows of one
// channel, from top to bottom. It loads each row of the input once, in quads, and adds it to all rows of the
// output that it is a part of: FLIGHT rows are in flight, and the oldest is complete after each step.
//#trusted
@group(0) @binding(0) var<storage, read> x: array<x_word>;            // [batch, channels, size..]
@group(0) @binding(1) var<storage, read> weight: array<weight_word>;  // [window.., channels]
@group(0) @binding(2) var<storage, read> bias: array<bias_word>;      // [channels]
@group(0) @binding(3) var<storage, read_write> y: array<f32>;         // [batch, channels, places..]
@group(0) @binding(4) var<uniform> p: Params;

struct Params {
    planes: u32,  // batch * channels
    channels: u32,
    band: u32,  // rows of an invocation
    input_rows: i32,
    input_columns: i32,
    rows: u32,
    columns: u32,
    row_padding: i32,
    column_padding: i32,
    has_bias: u32,  // 0 or 1, and not a define: compiling this kernel takes long
    clamped: u32,
    low: f32,
    high: f32,
}

fn store(plane: u32, row: u32, column: u32, sum: vec4<f32>) {
    var v = sum;
    if (p.has_bias == 1u) { v += f32(bias_at(plane % p.channels)); }
    if (p.clamped == 1u) { v = clamp_nan4(v, vec4<f32>(p.low), vec4<f32>(p.high)); }
//#if EPILOGUE
    v = epilogue(v);
//#end
    let at = (plane * p.rows + row) * p.columns + column;
    let left = p.columns - column;
    y[at] = v.x;
    if (left > 1u) { y[at + 1u] = v.y; }
    if (left > 2u) { y[at + 2u] = v.z; }
    if (left > 3u) { y[at + 3u] = v.w; }
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let across = (p.columns + 3u) / 4u;
    let bands = (p.rows + p.band - 1u) / p.band;
    let i = flat_index(id, groups);
    let plane = i / (across * bands);
    if (plane >= p.planes) { return; }
    let column = 4u * (i % across);
    let top = i / across % bands * p.band;
    let count = min(p.band, p.rows - top);
    let channel = plane % p.channels;
    var taps: array<f32, FLIGHT * ROW_STRIDE * WINDOW_COLUMNS>;
//#each t TAPS
    taps[t] = f32(weight_at(t * p.channels + channel));
//#end t
    let left = i32(column) * i32(COLUMN_STRIDE) - p.column_padding;
    let start = i32(plane) * p.input_rows * p.input_columns + left;
    let last = (i32(p.planes) * p.input_rows * p.input_columns - 1) / 4;
    var sums: array<vec4<f32>, FLIGHT>;
    for (var step = 0u; step < count + FLIGHT - 1u; step++) {
        let older = sums;
        sums[0] = vec4<f32>();
//#each j OLDER
        sums[j + 1u] = older[j];
//#end j
//#each u ROW_STRIDE
        let row = i32((top + step) * ROW_STRIDE + u) - p.row_padding;
        let first = start + row * p.input_columns;
        // Elements from an aligned quad on. They are moved down by the distance from it.
        var v: array<f32, 4u * FETCHED>;
//#each q FETCHED
        let four = vec4<f32>(x_quad(u32(clamp((first >> 2u) + i32(q), 0, last))));
        v[4u * q] = four.x;
        v[4u * q + 1u] = four.y;
        v[4u * q + 2u] = four.z;
        v[4u * q + 3u] = four.w;
//#end q
        let by_one = (first & 1) != 0;
        let by_two = (first & 2) != 0;
        let row_inside = row >= 0 && row < p.input_rows;
//#each n NEEDED
        let moved = select(select(v[n], v[n + 1u], by_one), select(v[n + 2u], v[n + 3u], by_one), by_two);
        let at = left + i32(n);
        v[n] = select(0.0, moved, row_inside && at >= 0 && at < p.input_columns);
//#end n
//#each j FLIGHT
        if (j * ROW_STRIDE + u < WINDOW_ROWS) {
//#each c WINDOW_COLUMNS
            let under = vec4<f32>(
                v[c], v[COLUMN_STRIDE + c], v[2u * COLUMN_STRIDE + c], v[3u * COLUMN_STRIDE + c]
            );
            sums[j] = fma(under, vec4<f32>(taps[(j * ROW_STRIDE + u) * WINDOW_COLUMNS + c]), sums[j]);
//#end c
        }
//#end j
//#end u
        if (step >= FLIGHT - 1u) { store(plane, top + step - (FLIGHT - 1u), column, sums[FLIGHT - 1u]); }
    }
}
