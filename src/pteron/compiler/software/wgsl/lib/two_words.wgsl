// Two words, which are loaded at once.
//#if WIDE
alias two_t = u64;
fn two_words(two: two_t) -> vec2<u32> { return vec2<u32>(u32(two), u32(two >> 32u)); }
//#else
alias two_t = vec2<u32>;
fn two_words(two: two_t) -> vec2<u32> { return two; }
//#end
