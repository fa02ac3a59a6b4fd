// The four lowest codes of a word. Each code has `width` bits.
fn spread(bits: u32, width: u32) -> vec4<u32> {
    return (vec4<u32>(bits) >> (vec4<u32>(0u, 1u, 2u, 3u) * width)) & vec4<u32>((1u << width) - 1u);
}
