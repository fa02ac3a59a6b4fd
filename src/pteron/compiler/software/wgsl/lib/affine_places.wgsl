// Codes of 4 or 8 bits that are not shifted: in its place in a word, a code is 16 or 256 times larger per place.
// x is divided by that, which is exact.
//#if BITS == 4
const PLACE = vec4<f32>(1.0, 0x1p-4, 0x1p-8, 0x1p-12);
const LATER_PLACE = vec4<f32>(0x1p-16, 0x1p-20, 0x1p-24, 1.0);
//#else
const PLACE = vec4<f32>(1.0, 0x1p-8, 0x1p-16, 1.0);
const LATER_PLACE = PLACE;
//#end

// The codes at place i of words. The last place is shifted, because a negative number would result.
fn codes_at(words: vec4<u32>, i: u32) -> vec4<f32> {
    let last = i == 32u / BITS - 1u;
    let mask = ((1u << BITS) - 1u) << (BITS * i);
    return vec4<f32>(vec4<i32>(select(words & vec4<u32>(mask), words >> vec4<u32>(32u - BITS), last)));
}
