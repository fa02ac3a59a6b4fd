// The lowest score of a visible key. A hidden key has the score LOWEST.
const FAINTEST = -3.4e38;

//#if MASK != none
// Scores after the mask. A mask of false or -inf hides a key.
fn masked(scores: vec4<f32>, m: mask_t4) -> vec4<f32> {
    if (MASK_IS_BOOL) { return select(vec4<f32>(LOWEST), scores, m != mask_t4(0)); }
    let sums = scores + vec4<f32>(m);
    let visible = select(sums, vec4<f32>(FAINTEST), sums < vec4<f32>(FAINTEST));  // max may drop NaN
    return select(visible, vec4<f32>(LOWEST), sums < vec4<f32>(LOWEST));
}
//#end

// The score of a key for query s, after the mask.
fn masked_score(product: f32, b: u32, h: u32, s: u32, key: u32) -> f32 {
    if (key < first_key(s) || key >= visible_keys(s)) { return LOWEST; }
    var score = capped(product);
//#if MASK != none
    let m = mask_at(b * p.mask_batch + h * p.mask_head + s * p.mask_length + key * p.mask_key);
    score = masked(vec4<f32>(score), mask_t4(m)).x;
//#end
    return score;
}
fn softmax_weight(score: f32, top: f32) -> f32 { return select(exp(score - top), 0.0, score == LOWEST); }
