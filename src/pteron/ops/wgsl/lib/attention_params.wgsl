struct Params {
    batch: u32, length: u32, heads: u32, sharing: u32, context: u32, scale: f32,
    q_batch: u32, q_length: u32, q_head: u32,
    k_batch: u32, k_length: u32, k_head: u32,
//#if HAS_MASK
    mask_batch: u32, mask_head: u32, mask_length: u32, mask_key: u32,
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
    return keys;
}
