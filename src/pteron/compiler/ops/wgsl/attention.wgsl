// One row of attention per invocation: softmax(q . k * scale + mask) v with a running softmax.
// A query at position `at` sees the keys 0 .. at if CAUSAL, and otherwise the whole context.
@group(0) @binding(0) var<storage, read_write> y: array<y_word>;  // as q
//#include attention_operands

const QUADS = (WIDTH + 3u) / 4u;
const WHOLE = WIDTH % 4u == 0u;

// Quad d of the row that starts at element `first`. An incomplete last quad is filled with zeros.
fn q_row(first: u32, d: u32) -> vec4<f32> {
    if (WHOLE) { return vec4<f32>(q_quad(first / 4u + d)); }
    var out = vec4<f32>(0.0);
    for (var c = 0u; c < 4u; c++) { if (4u * d + c < WIDTH) { out[c] = f32(q_at(first + 4u * d + c)); } }
    return out;
}
fn k_row(first: u32, d: u32) -> vec4<f32> {
    if (WHOLE) { return vec4<f32>(k_quad(first / 4u + d)); }
    var out = vec4<f32>(0.0);
    for (var c = 0u; c < 4u; c++) { if (4u * d + c < WIDTH) { out[c] = f32(k_at(first + 4u * d + c)); } }
    return out;
}
fn v_row(first: u32, d: u32) -> vec4<f32> {
    if (WHOLE) { return vec4<f32>(v_quad(first / 4u + d)); }
    var out = vec4<f32>(0.0);
    for (var c = 0u; c < 4u; c++) { if (4u * d + c < WIDTH) { out[c] = f32(v_at(first + 4u * d + c)); } }
    return out;
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let row = flat_index(id, groups);
    if (row >= p.batch * p.heads * p.length) { return; }
    let s = row % p.length;
    let h = (row / p.length) % p.heads;
    let b = row / (p.length * p.heads);
    let q_first = b * p.q_batch + s * p.q_length + h * p.q_head;
    let k_first = caches_of(b, s) * p.k_batch + (h / p.sharing) * p.k_head;
    let keys = visible_keys(s);

    var query: array<vec4<f32>, QUADS>;
    var sum: array<vec4<f32>, QUADS>;
    for (var d = 0u; d < QUADS; d++) {
        query[d] = q_row(q_first, d) * p.scale;
        sum[d] = vec4<f32>(0.0);
    }
    var seen = false;
    var top = 0.0;
    var total = 0.0;
    for (var t = first_key(s); t < keys; t++) {
        let first = k_first + t * p.k_length;
        var partial = vec4<f32>(0.0);
        for (var d = 0u; d < QUADS; d++) { partial += query[d] * k_row(first, d); }
        var score = capped(dot(partial, vec4<f32>(1.0)));
//#if MASK != none
        let m = mask_at(b * p.mask_batch + h * p.mask_head + s * p.mask_length + t * p.mask_key);
        if (MASK_IS_BOOL) { if (m == mask_t(0)) { continue; } } else { score += f32(m); }
//#end
        // A key with a mask of -inf adds nothing, even if it is the first key. A row in which all keys have a
        // mask of -inf gives 0 / 0, which is NaN, as in torch.
        if (score < LOWEST) { continue; }
        if (!seen) {
            top = score;
            seen = true;
        }
        let new_top = max(top, score);
        let fade = exp(top - new_top);
        let weight = exp(score - new_top);
        top = new_top;
        total = total * fade + weight;
        for (var d = 0u; d < QUADS; d++) { sum[d] = sum[d] * fade + weight * v_row(first, d); }
    }
    for (var d = 0u; d < QUADS; d++) { store(q_first, d, divided(sum[d], total)); }
}
