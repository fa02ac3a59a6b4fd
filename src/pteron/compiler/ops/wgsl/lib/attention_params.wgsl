struct Params {
    batch: u32, length: u32, heads: u32, sharing: u32, context: u32, scale: f32,
    q_batch: u32, q_length: u32, q_head: u32,
    k_batch: u32, k_length: u32, k_head: u32,
//#if MASK != none
    mask_batch: u32, mask_head: u32, mask_length: u32, mask_key: u32,
//#end
//#if SOFTCAP
    softcap: f32,
//#end
//#if SPLIT
    chunks: u32,
//#end
//#if ROLLED
    quads: u32,  // WIDTH / 4, for loops that must not be unrolled: registers would not suffice
//#end
}

// Less than every score. Unlike -inf it can be subtracted from itself without NaN.
const LOWEST = -3.4028234e38;

// The number of keys that query s of this call sees.
fn visible_keys(s: u32) -> u32 {
    var keys = p.context;
    if (FROM_POSITION) { keys = u32(start_pos.x) + p.length; }
    if (CAUSAL) { keys = min(keys, u32(start_pos.x) + s + 1u); }
//#if SEGMENTED
    keys = u32(positions[s]) + 1u;
//#end
    return keys;
}

// The index of its keys and values among those of the batch, or among all KV caches.
fn caches_of(b: u32, s: u32) -> u32 {
    var index = b;
//#if SEGMENTED
    index = u32(slots[s]);
//#end
    return index;
}

// The first of them. WINDOW is the largest number of keys that a query sees; 0: all up to its own.
fn first_key(s: u32) -> u32 {
    let end = visible_keys(s);
    return select(0u, end - WINDOW, WINDOW > 0u && end > WINDOW);
}

// Which keys are visible to a query that sees keys before `end`.
fn are_seen(keys: vec4<u32>, end: u32) -> vec4<bool> {
    var seen = keys < vec4<u32>(end);
    if (WINDOW > 0u) { seen = seen & (keys + WINDOW >= vec4<u32>(end)); }
    return seen;
}

// Scores after soft-capping, if there is any.
fn capped4(scores: vec4<f32>) -> vec4<f32> {
    var result = scores;
//#if SOFTCAP
    result = p.softcap * tanh4(scores / p.softcap);
//#end
    return result;
}
fn capped(score: f32) -> f32 { return capped4(vec4<f32>(score)).x; }

// A quad of the result, from a weighted sum of values and the sum of the weights. A row without visible keys is
// NaN, or 0 if EMPTY_IS_ZERO.
fn divided(sum: vec4<f32>, total: f32) -> vec4<f32> {
    if (EMPTY_IS_ZERO && total == 0.0) { return vec4<f32>(0.0); }
    return sum / total;
}
