// Eight words, which are loaded at once.
struct Eight { low: vec4<u32>, high: vec4<u32> }

//#if WIDE
alias eight_t = vec4<u64>;
fn eight_words(eight: eight_t) -> Eight {
    let even = vec4<u32>(eight);
    let odd = vec4<u32>(eight >> vec4<u32>(32u));
    return Eight(vec4<u32>(even.x, odd.x, even.y, odd.y), vec4<u32>(even.z, odd.z, even.w, odd.w));
}
fn first_of(eight: eight_t) -> u32 { return u32(eight.x); }
//#else
alias eight_t = Eight;
fn eight_words(eight: eight_t) -> Eight { return eight; }
fn first_of(eight: eight_t) -> u32 { return eight.low.x; }
//#end
