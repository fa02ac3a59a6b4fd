// Four words, which are loaded at once.
//#if WIDE
alias four_t = vec2<u64>;
fn four_words(four: four_t) -> vec4<u32> {
    let even = vec2<u32>(four);
    let odd = vec2<u32>(four >> vec2<u32>(32u));
    return vec4<u32>(even.x, odd.x, even.y, odd.y);
}
//#else
alias four_t = vec4<u32>;
fn four_words(four: four_t) -> vec4<u32> { return four; }
//#end
