// Convolution as a matrix product by tiles, for each group of channels: the weights [channels, depth] times the
// inputs under the window [depth, positions of all images]. The second operand is read from x, and is never
// stored. A workgroup computes ROWS channels at COLUMNS positions. In each step it has a slice of both operands
// in its memory, and loads the next one. A slice is STEP channels under one tap, or if MIXED any STEP elements
// of the depth. If SPLIT, several workgroups divide the depth, and conv_merge adds their sums.
@group(0) @binding(0) var<storage, read> x: array<f32>;           // [batch, in_channels, input..]
@group(0) @binding(1) var<storage, read> weight: array<WEIGHTS>;  // [inputs, taps.., out_channels]
//#if not SPLIT
@group(0) @binding(2) var<storage, read> bias: array<f32>;        // [out_channels]
//#end
@group(0) @binding(3) var<storage, read_write> y: array<f32>;     // [batch, out_channels, output..] of every split
@group(0) @binding(4) var<uniform> p: Params;

struct Params {
    batch: u32,
    in_channels: u32,
    out_channels: u32,
    groups: u32,
    input: vec3<u32>,
    output: vec3<u32>,
    padding: vec3<i32>,
    splits: u32,
    share: u32,   // slices of a split
    stride: u32,  // elements of y from one split to the next
    has_bias: u32,
    clamped: u32,
    low: f32,
    high: f32,
}

const DOWN = ROWS / (4u * HEIGHT);
const ACROSS = COLUMNS / 4u;
const LANES = DOWN * ACROSS;
const FOURS = ROWS / 4u;
const WEIGHT_STEP = STEP / WEIGHT_LOADS;
const TAPS = DEPTH_WINDOW * ROW_WINDOW * COLUMN_WINDOW;

// Step k of a slice is [k / WEIGHT_STEP][k % WEIGHT_STEP] of the weights, and [k / LOADS][k % LOADS] of x.
// Every index is a constant or depends on the lane alone, so the driver's checks are outside of all loops.
var<workgroup> some_weights: array<array<array<array<vec4<f32>, DOWN>, HEIGHT>, WEIGHT_STEP>, WEIGHT_LOADS>;
var<workgroup> some_x: array<array<array<vec4<f32>, ACROSS>, LOADS>, STEP / LOADS>;

struct Spot { at: u32, inside: bool }

// The input under a tap of a window. Outside of the image, an element that exists.
fn under(place: vec3<i32>, tap: u32) -> Spot {
    let step = vec3<u32>(tap / (ROW_WINDOW * COLUMN_WINDOW), tap / COLUMN_WINDOW % ROW_WINDOW, tap % COLUMN_WINDOW);
    let spot = vec3<u32>(place + vec3<i32>(step * vec3<u32>(DEPTH_DILATION, ROW_DILATION, COLUMN_DILATION)));
    let inside = all(spot < p.input);  // a negative index is a large number
    return Spot(select(0u, (spot.x * p.input.y + spot.y) * p.input.z + spot.z, inside), inside);
}

fn place_of(position: u32) -> vec3<i32> {
    let row = position / p.output.z;
    let place = vec3<u32>(row / p.output.y, row % p.output.y, position % p.output.z);
    return vec3<i32>(place * vec3<u32>(DEPTH_STRIDE, ROW_STRIDE, COLUMN_STRIDE)) - p.padding;
}

@compute @workgroup_size(LANES)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let inputs = p.in_channels / p.groups;
    let rows = p.out_channels / p.groups;
    let volume = p.input.x * p.input.y * p.input.z;
    let positions = p.output.x * p.output.y * p.output.z;
    let columns = p.batch * positions;
    let tall = (rows + ROWS - 1u) / ROWS;
    let wide = (columns + COLUMNS - 1u) / COLUMNS;
    let tile = flat_group(id, groups);
    let group = tile / (tall * wide) % p.groups;
    let split = tile / (tall * wide * p.groups);
    if (split >= p.splits) { return; }
    let top = tile % tall * ROWS;
    let left = tile / tall % wide * COLUMNS;

    // What this lane loads: LOADS channels at one position, and WEIGHT_LOADS quads of output channels.
    let column = min(left + lane % COLUMNS, columns - 1u);
    let place = place_of(column % positions);
    let first_channel = lane / COLUMNS * LOADS;
    let plane = (column / positions * p.in_channels + group * inputs) * volume;
    let row = lane % FOURS;
    let first_row = lane / FOURS;

    let per_tap = (inputs + STEP - 1u) / STEP;
    let slices = select(TAPS * per_tap, (TAPS * inputs + STEP - 1u) / STEP, MIXED);
    let first = split * p.share;
    let end = min(first + p.share, slices);
    var tap = min(first / per_tap, TAPS - 1u);
    var channel = first % per_tap * STEP;
    var spot = under(place, tap);

    let down = lane / ACROSS;
    let right = lane % ACROSS;
    var next: array<f32, LOADS>;
    var next_weights: array<vec4<f32>, WEIGHT_LOADS>;
//#if MIXED
    var exist = 0u;  // a bit for each element of `next` that is not padding
//#end
    var sum: array<vec4<f32>, 4u * HEIGHT>;
    for (var slice = first; slice < end + 1u; slice++) {
//#if MIXED
        exist = 0u;
//#each n LOADS
        {
            let at = slice * STEP + first_channel + n;
            let mixed = under(place, at % TAPS);
            exist |= select(0u, 1u << n, mixed.inside && at < TAPS * inputs);
            next[n] = x[plane + min(at / TAPS, inputs - 1u) * volume + mixed.at];
        }
//#end n
//#else
        let from_x = plane + spot.at + (channel + first_channel) * volume;
        let last_x = plane + spot.at + (inputs - 1u) * volume;
//#each n LOADS
        next[n] = x[select(min(from_x + n * volume, last_x), from_x + n * volume, WHOLE)];
//#end n
//#end
        let from_row = select((channel + first_row) * TAPS + tap, slice * STEP + first_row, MIXED);
        let row_step = WEIGHT_STEP * select(TAPS, 1u, MIXED);
        let last_row = select((inputs - 1u) * TAPS + tap, TAPS * inputs - 1u, MIXED);
//#each n WEIGHT_LOADS
        {
            let line = select(min(from_row + n * row_step, last_row), from_row + n * row_step, WHOLE);
//#if QUAD_WEIGHTS
            next_weights[n] = weight[(line * p.out_channels + group * rows + min(top + 4u * row, rows - 4u)) / 4u];
//#else
            let from_weight = line * p.out_channels + group * rows;
            let some = min(vec4<u32>(top + 4u * row) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(rows - 1u));
            next_weights[n] = vec4<f32>(
                weight[from_weight + some.x], weight[from_weight + some.y],
                weight[from_weight + some.z], weight[from_weight + some.w],
            );
//#end
        }
//#end n
        if (slice > first) {
            for (var k = 0u; k < STEP; k++) {
            let v = some_x[k / LOADS][k % LOADS][right];
//#each h HEIGHT
            let w = some_weights[k / WEIGHT_STEP][k % WEIGHT_STEP][h][down];
            sum[4u * h] = fma(vec4<f32>(w.x), v, sum[4u * h]);
            sum[4u * h + 1u] = fma(vec4<f32>(w.y), v, sum[4u * h + 1u]);
            sum[4u * h + 2u] = fma(vec4<f32>(w.z), v, sum[4u * h + 2u]);
            sum[4u * h + 3u] = fma(vec4<f32>(w.w), v, sum[4u * h + 3u]);
//#end h
            }
        }
        workgroupBarrier();
//#each n LOADS
//#if MIXED
        let exists = (exist & (1u << n)) != 0u;
//#else
        let exists = spot.inside && (WHOLE || channel + first_channel + n < inputs);
//#end
        some_x[lane / COLUMNS][n][lane % COLUMNS / 4u][lane % 4u] = select(0.0, next[n], exists);
//#end n
//#each n WEIGHT_LOADS
        some_weights[n][first_row][row / DOWN][row % DOWN] = next_weights[n];
//#end n
        workgroupBarrier();
        channel += STEP;
        if (!MIXED && channel >= inputs) {
            channel = 0u;
            tap = min(tap + 1u, TAPS - 1u);
            spot = under(place, tap);
        }
    }

    var to: array<u32, 4>;
//#each j 4
    let at = min(left + 4u * right + j, columns - 1u);
    to[j] = split * p.stride + at / positions * p.out_channels * positions + at % positions;
//#end j
//#each h HEIGHT
//#each r 4
    let own = top + 4u * (down + h * DOWN) + r;
    if (own < rows) {
        var v = sum[4u * h + r];
        let made = group * rows + own;
//#if not SPLIT
        if (p.has_bias == 1u) { v += bias[made]; }
        if (p.clamped == 1u) { v = clamp_nan4(v, vec4<f32>(p.low), vec4<f32>(p.high)); }
//#if EPILOGUE
        v = epilogue(v);
//#end
//#end
//#each j 4
        if (left + 4u * right + j < columns) { y[to[j] + made * positions] = v[j]; }
//#end j
    }
//#end r
//#end h
}
