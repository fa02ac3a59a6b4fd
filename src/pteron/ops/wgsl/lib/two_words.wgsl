// Two words, which are loaded at once.
//#narrow
alias two_t = vec2<u32>;
fn two_words(two: two_t) -> vec2<u32> { return two; }
//#wide
alias two_t = u64;
fn two_words(two: two_t) -> vec2<u32> { return vec2<u32>(u32(two), u32(two >> 32u)); }
//#end wide
