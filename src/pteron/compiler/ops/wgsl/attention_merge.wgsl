// Merge the chunks of a row into one softmax. One invocation computes one quad of a row of the result.
@group(0) @binding(0) var<storage, read> parts: array<vec4<f32>>;  // see attention_chunks
@group(0) @binding(1) var<storage, read_write> y: array<y_word>;   // as q
@group(0) @binding(2) var<uniform> start_pos: vec4<i32>;
@group(0) @binding(3) var<uniform> p: Params;
//#include attention_segments

//#include attention_params
//#include attention_chunks

const AT_ONCE = 8u;  // chunks whose loads are under way together

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    let row = i / QUADS;
    let d = i % QUADS;
    if (row >= p.batch * p.heads * p.length) { return; }
    let s = query_at(row % p.length);
    let h = (row / p.length) % p.heads;
    let b = row / (p.length * p.heads);
    let keys = visible_keys(s) - first_key(s);
    let each = max(chunk_length(s), 1u);
    var top = LOWEST;
    var total = 0.0;
    var sum = vec4<f32>(0.0);
    let chunks = (keys + each - 1u) / each;
    for (var several = 0u; several < (chunks + AT_ONCE - 1u) / AT_ONCE; several++) {
        var ends: array<vec4<f32>, AT_ONCE>;
        var some: array<vec4<f32>, AT_ONCE>;
        for (var n = 0u; n < AT_ONCE; n++) {
            let part = part_of(row, min(several * AT_ONCE + n, chunks - 1u));
            ends[n] = parts[part + QUADS];
            some[n] = parts[part + d];
        }
        var new_top = top;
        for (var n = 0u; n < AT_ONCE; n++) { new_top = max(new_top, ends[n].x); }
        let fade = exp(top - new_top);
        top = new_top;
        total *= fade;
        sum *= fade;
        for (var n = 0u; n < AT_ONCE; n++) {
            let share = select(0.0, exp(ends[n].x - top), several * AT_ONCE + n < chunks);
            total += share * ends[n].y;
            sum += share * some[n];
        }
    }
    y_put((b * p.q_batch + s * p.q_length + h * p.q_head) / 4u + d, y_t4(divided(sum, total)));
}
