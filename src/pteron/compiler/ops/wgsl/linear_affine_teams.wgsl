// y = x @ W^T + bias with coded W, for few rows. With NORMED, x is normalized: its rows are multiplied by the
// factors of the norm first, and the sums by the inverse of the root mean square last. The lanes of a team divide the depth of two columns, and
// then add up their sums. Neighbouring lanes read neighbouring words. A lane computes 32 steps in depth at a
// time.
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;        // [rows, depth / 4]
@group(0) @binding(1) var<storage, read> weights: array<vec4<u32>>;  // [columns, row_bytes / 16]
//#include affine_operands
//#include affine_numbers
//#include affine_spread
//#include experts
//#if ROTARY
//#include finish_rotary
//#else
//#include finish_fused
//#end
//#if NORMED
@group(0) @binding(11) var<storage, read> norm: array<vec4<f32>>;    // [depth / 4], the factors of an RMS norm of x
//#end

const TEAMS = WG / TEAM;       // TEAM lanes each
const ACROSS = 2u * TEAMS;     // columns per workgroup
const SUMS = ROWS * TEAMS;     // pairs of sums per workgroup

// With IN_SUBGROUP, eight neighbours add up their sums first: a subgroup has at least eight lanes.
//#if IN_SUBGROUP
const TOGETHER = 8u;
//#else
const TOGETHER = 1u;
//#end
const PARTS = TEAM / TOGETHER;  // of the sums of a team

var<workgroup> parts: array<vec2<f32>, PARTS * SUMS>;
//#if NORMED
var<workgroup> squares: array<f32, PARTS * SUMS>;
//#end

//#if IN_SUBGROUP
fn together(mine: f32) -> f32 {
    let two = mine + subgroupShuffleXor(mine, 1u);
    let four = two + subgroupShuffleXor(two, 2u);
    return four + subgroupShuffleXor(four, 4u);
}
//#else
fn together(mine: f32) -> f32 { return mine; }
//#end

// The words of 32 steps of a column. affine_quads describes their layout.
struct Words { bytes: array<vec4<u32>, 2>, nibbles: vec4<u32>, pairs: vec2<u32>, singles: u32 }

fn word(i: u32) -> u32 { return weights[i / 4u][i & 3u]; }

fn words_of(column: u32, k: u32) -> Words {
    var words: Words;
    let row = column * (p.row_bytes / 16u);
    var plane = 4u * row;
//#if BYTES
    words.bytes = array<vec4<u32>, 2>(weights[row + 2u * k], weights[row + 2u * k + 1u]);
//#end
//#if NIBBLES
    words.nibbles = weights[row + k];
    plane += p.depth / 8u;
//#end
//#if PAIRS
    words.pairs = vec2<u32>(word(plane + 2u * k), word(plane + 2u * k + 1u));
    plane += p.depth / 16u;
//#end
//#if SINGLES
    words.singles = word(plane + k);
//#end
    return words;
}

// Quad i of eight.
fn quad_of(words: Words, i: u32, line: Line) -> vec4<f32> {
    var q = vec4<u32>(0u);
//#if BYTES
    q = spread(select(words.bytes[0], words.bytes[1], i > 3u)[i & 3u], 8u);
//#end
//#if NIBBLES
    q = spread(words.nibbles[i / 2u] >> (16u * (i & 1u)), 4u);
//#end
//#if PAIRS
    q |= spread(words.pairs[i / 4u] >> (8u * (i & 3u)), 2u) << vec4<u32>(BELOW_PAIRS);
//#end
//#if SINGLES
    q |= spread(words.singles >> (4u * i), 1u) << vec4<u32>(BELOW_SINGLES);
//#end
    return fma(numbers(q), vec4<f32>(line.scale), vec4<f32>(line.start));
}

// The sums of a pair of columns, from those of the lanes of its team.
fn total_of(pair: u32) -> vec2<f32> {
    var total = vec2<f32>(0.0);
    for (var m = 0u; m < PARTS; m++) { total += parts[m * SUMS + pair]; }
//#if NORMED
    var whole = 0.0;
    for (var m = 0u; m < PARTS; m++) { whole += squares[m * SUMS + pair]; }
    total *= inverseSqrt(whole / f32(p.depth) + p.eps);
//#end
    return total;
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let blocks = (p.columns + ACROSS - 1u) / ACROSS;
    let block = flat_group(group, groups);
    let row = (block / blocks) * ROWS;
    let column = (block % blocks) * ACROSS;
    if (row >= p.rows) { return; }
    let team = lane / TEAM;
    let member = lane % TEAM;
    // Rows and columns past the end repeat the last one. They are not stored.
    let both = min(vec2<u32>(column + 2u * team) + vec2<u32>(0u, 1u), vec2<u32>(p.columns - 1u));
    let c = vec2<u32>(column_of(both.x), column_of(both.y)) + first_weight_row(row);
    var sum: array<vec2<f32>, ROWS>;
//#if NORMED
    var square: array<f32, ROWS>;
//#end
    for (var turn = 0u; turn < TURNS; turn++) {
        let k = member + turn * TEAM;
        if (k >= p.depth / 32u) { break; }
        let words_a = words_of(c.x, k);
        let words_b = words_of(c.y, k);
        for (var half = 0u; half < 2u; half++) {  // sixteen steps are in one group
            let g = (32u * k + 16u * half) / GROUP;
            let line_a = line_of(c.x, g);
            let line_b = line_of(c.y, g);
            for (var i = 4u * half; i < 4u * half + 4u; i++) {
                let a = quad_of(words_a, i, line_a);
                let b = quad_of(words_b, i, line_b);
                for (var r = 0u; r < ROWS; r++) {
                    var four = x[x_row(min(row + r, p.rows - 1u)) * (p.depth / 4u) + 8u * k + i];
//#if NORMED
                    square[r] += dot(four, four);
                    four *= norm[8u * k + i];
//#end
                    sum[r] += vec2<f32>(dot(four, a), dot(four, b));
                }
            }
        }
    }
    for (var r = 0u; r < ROWS; r++) {
        let at = member / TOGETHER * SUMS + r * TEAMS + team;
        let both = vec2<f32>(together(sum[r].x), together(sum[r].y));
        if (member % TOGETHER == 0u) { parts[at] = both; }
//#if NORMED
        let whole = together(square[r]);
        if (member % TOGETHER == 0u) { squares[at] = whole; }
//#end
    }
    workgroupBarrier();
//#if ROTARY
    if (lane >= SUMS / 2u) { return; }
    finish_rotary(row + 2u * lane / TEAMS, column + 4u * lane % ACROSS, vec4<f32>(total_of(2u * lane), total_of(2u * lane + 1u)));
//#else
    if (lane >= SUMS) { return; }
    let total = total_of(lane);
    finish_fused(row + lane / TEAMS, column + 2u * lane % ACROSS, 2u, vec4<f32>(total, total));
//#end
}
