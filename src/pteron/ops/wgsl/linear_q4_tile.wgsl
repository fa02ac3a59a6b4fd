// y = x @ W^T + bias with 4-bit W, for many rows: a workgroup computes ROWS (64 or 32) rows of as many columns. Step by
// step in depth it brings a slice of x and one of W into workgroup memory, W unpacked and scaled once for all rows.
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;        // [rows, depth / 4]
@group(0) @binding(1) var<storage, read> weights: array<u32>;        // [columns, packed / 4]
@group(0) @binding(2) var<storage, read> scales: array<f32>;         // [depth / group, scale_row]
@group(0) @binding(3) var<storage, read> bias: array<f32>;           // [columns]
@group(0) @binding(4) var<storage, read_write> y: array<f32>;        // [rows, columns]
@group(0) @binding(5) var<uniform> p: Params;
//#if SECOND
@group(0) @binding(6) var<storage, read_write> y2: array<f32>;
//#end
//#if THIRD
@group(0) @binding(7) var<storage, read_write> y3: array<f32>;
//#end

struct Params {
    rows: u32, columns: u32, second: u32, third: u32,
    depth: u32, packed: u32, group: u32, scale_row: u32,
}

//#include q4
//#include store

const QUADS = 4u;           // of depth in a step
const DOWN = 8u;            // lanes: each has every DOWN-th row, and every ACROSS-th column, of which there are four
const ACROSS = ROWS / 4u;
const LANES = DOWN * ACROSS;

var<workgroup> some_x: array<vec4<f32>, ROWS * QUADS>;  // [quad, row]
var<workgroup> some_w: array<vec4<f32>, ROWS * QUADS>;  // [quad, column]

@compute @workgroup_size(LANES)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let across = (p.columns + ROWS - 1u) / ROWS;
    let block = flat_group(group, groups);
    let row = (block / across) * ROWS;
    let column = (block % across) * ROWS;
    if (row >= p.rows) { return; }
    let k4 = p.depth / 4u;
    // What this lane brings: of x, a quad of each of two rows; of W, one word of a column. Rows and columns past
    // the end repeat the last one, and are not stored; quads past the end are zero.
    let my_quad = lane % QUADS;
    let my_row = lane / QUADS;
    let my_word = lane % (QUADS / 2u);
    let my_column = lane / (QUADS / 2u);
    let from_column = min(column + my_column, p.columns - 1u);
    let down = lane / ACROSS;
    let right = lane % ACROSS;
    var sum: array<vec4<f32>, ROWS / DOWN>;
    for (var k = 0u; k < k4; k += QUADS) {
        for (var i = my_row; i < ROWS; i += LANES / QUADS) {
            let at = min(row + i, p.rows - 1u) * k4 + min(k + my_quad, k4 - 1u);
            some_x[my_quad * ROWS + i] = select(vec4<f32>(0.0), x[at], k + my_quad < k4);
        }
        let first = k + 2u * my_word;
        let inside = first < k4;
        let word = weights[from_column * (p.packed / 4u) + select(0u, first / 2u, inside)];
        let scale = scales[select(0u, 4u * first / p.group, inside) * p.scale_row + from_column];
        some_w[2u * my_word * ROWS + my_column] = low_quad(word) * scale;
        some_w[(2u * my_word + 1u) * ROWS + my_column] = high_quad(word) * scale;
        workgroupBarrier();
        for (var q = 0u; q < QUADS; q++) {
            let from_w = q * ROWS + right;
            let w0 = some_w[from_w];
            let w1 = some_w[from_w + ACROSS];
            let w2 = some_w[from_w + 2u * ACROSS];
            let w3 = some_w[from_w + 3u * ACROSS];
            for (var r = 0u; r < ROWS / DOWN; r++) {
                let v = some_x[q * ROWS + down + r * DOWN];
                sum[r] += vec4<f32>(dot(v, w0), dot(v, w1), dot(v, w2), dot(v, w3));
            }
        }
        workgroupBarrier();
    }
    for (var c = 0u; c < 4u; c++) {
        let to_column = column + right + c * ACROSS;
        var b = 0.0;
        if (HAS_BIAS) { b = bias[min(to_column, p.columns - 1u)]; }
        for (var r = 0u; r < ROWS / DOWN; r++) { store(row + down + r * DOWN, to_column, sum[r][c] + b); }
    }
}
