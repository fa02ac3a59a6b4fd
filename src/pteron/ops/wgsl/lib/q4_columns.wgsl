// Eight 4-bit weights of each of four columns. Flipping the top bit of a stored nibble (value + 8)
// makes it two's complement, which a pair of shifts extends.
fn unpack(words: vec4<u32>) -> Eight {
    let w = bitcast<vec4<i32>>(words ^ vec4<u32>(0x88888888u));
    let top = vec4<u32>(28u);
    return Eight(
        vec4<f32>((w << vec4<u32>(28u)) >> top), vec4<f32>((w << vec4<u32>(24u)) >> top),
        vec4<f32>((w << vec4<u32>(20u)) >> top), vec4<f32>((w << vec4<u32>(16u)) >> top),
        vec4<f32>((w << vec4<u32>(12u)) >> top), vec4<f32>((w << vec4<u32>(8u)) >> top),
        vec4<f32>((w << vec4<u32>(4u)) >> top), vec4<f32>(w >> top),
    );
}
