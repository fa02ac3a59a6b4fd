// The lowest score of a visible key. A hidden key has the score LOWEST.
const FAINTEST = -3.4e38;

// The score of a key for query s, after the mask. A mask of -inf hides a key.
fn masked_score(product: f32, b: u32, h: u32, s: u32, key: u32) -> f32 {
    if (key < first_key(s) || key >= visible_keys(s)) { return LOWEST; }
    var score = capped(product);
//#if HAS_MASK
    let m = mask_at(b * p.mask_batch + h * p.mask_head + s * p.mask_length + key * p.mask_key);
    if (MASK_IS_BOOL) { if (m == mask_t(0)) { return LOWEST; } } else { score += f32(m); }
//#end
    return select(max(score, FAINTEST), LOWEST, score < LOWEST);
}
fn softmax_weight(score: f32, top: f32) -> f32 { return select(exp(score - top), 0.0, score == LOWEST); }
