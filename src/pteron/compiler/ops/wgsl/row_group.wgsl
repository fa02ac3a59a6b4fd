// One workgroup computes one row. The lanes compute states from the elements and merge them. Then the final
// state gives the results of all elements. The rule supplies the state (see lib/join), `finish` and `apply`.
@group(0) @binding(0) var<storage, read> x: array<x_word>;               // [rows, width]
@group(0) @binding(1) var<storage, read_write> y: array<y_word>;         // [rows, width]
//#if ADDED
@group(0) @binding(2) var<storage, read> other: array<other_word>;       // as x, to be added to it
@group(0) @binding(3) var<storage, read_write> total: array<total_word>; // their sum
//#end
//#if HAS_WEIGHT
@group(0) @binding(4) var<storage, read> weight: array<weight_word>;     // [channels]
//#end
//#if HAS_BIAS
@group(0) @binding(5) var<storage, read> bias: array<bias_word>;         // [channels]
//#end
//#if KEPT
@group(0) @binding(6) var<storage, read_write> stats: array<vec2<f32>>;  // [rows]
//#end
@group(0) @binding(7) var<uniform> p: Params;

struct Params {
    rows: u32,
    width: u32,
    channels: u32,  // the number of weights and of biases
    inner: u32,     // neighbouring elements that share a weight and a bias
    eps: f32,
}

//#if IN_SUBGROUP
//#include join_subgroup
//#else
//#include join
//#end

fn value(quad: u32) -> x_t4 {
    var v = x_quad(quad);
//#if ADDED
    v += other_quad(quad);
//#end
    return v;
}

// The state of the elements `begin` .. `end` of a quad.
fn fold(v: x_t4, begin: u32, end: u32) -> state_t {
    var state = lift(v[begin], 0u);
    for (var n = begin + 1u; n < end; n++) { state = merge(state, lift(v[n], 0u)); }
    return state;
}

// The results of a quad of elements. k is the number of the quad in its row.
fn results(quad: u32, k: u32, s: vec2<f32>) -> vec4<f32> {
    let c = (vec4<u32>(4u * quad) + vec4<u32>(0u, 1u, 2u, 3u)) / p.inner % p.channels;
    var w = vec4<f32>(1.0);
    var b = vec4<f32>(0.0);
//#if HAS_WEIGHT
    if (ALONG) { w = vec4<f32>(weight_quad(k)); }
    else { w = vec4<f32>(vec4(weight_at(c.x), weight_at(c.y), weight_at(c.z), weight_at(c.w))); }
//#end
//#if HAS_BIAS
    if (ALONG) { b = vec4<f32>(bias_quad(k)); }
    else { b = vec4<f32>(vec4(bias_at(c.x), bias_at(c.y), bias_at(c.z), bias_at(c.w))); }
//#end
    return apply(vec4<f32>(value(quad)), s, w, b);
}

@compute @workgroup_size(LANES)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = flat_group(group, groups);
    if (row >= p.rows) { return; }
    // If rows are not whole quads (RAGGED), the first and the last quad also have elements of other rows.
    let begin = row * p.width;
    let end = begin + p.width;
    let first = begin / 4u;
    let count = (end + 3u) / 4u - first;
    var state: state_t;
    let turns = select((count + LANES - 1u) / LANES, TURNS, TURNS > 0u);
    for (var turn = 0u; turn < turns; turn++) {
        let k = lane + turn * LANES;
        if (k >= count) { continue; }
        let v = value(first + k);
        var more: state_t;
        if (RAGGED) {
            let at = 4u * (first + k);
            more = fold(v, max(at, begin) - at, min(at + 4u, end) - at);
        } else {
            more = fold(v, 0u, 4u);
        }
        if (turn == 0u) { state = more; } else { state = merge(state, more); }
//#if ADDED
        total_put(first + k, v);
//#end
    }
    let s = finish(join(state, lane, min(count, LANES)));
//#if KEPT
    if (lane == 0u) { stats[row] = s; }
//#end
    for (var turn = 0u; turn < turns; turn++) {
        let k = lane + turn * LANES;
        if (k >= count) { continue; }
        let v = y_t4(results(first + k, k, s));
//#if RAGGED
        let at = 4u * (first + k);
        if (at < begin || at + 4u > end) {
            for (var n = max(at, begin); n < min(at + 4u, end); n++) { y_set(n, v[n - at]); }
            continue;
        }
//#end
        y_put(first + k, v);
    }
}
