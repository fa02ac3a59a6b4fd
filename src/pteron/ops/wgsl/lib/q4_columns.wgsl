// Eight 4-bit weights of each of four columns, by steps in depth. Flipping the top bit of a stored nibble
// (value + 8) makes it two's complement, which a pair of shifts extends.
struct Steps { low: mat4x4<f32>, high: mat4x4<f32> }

fn unpack(words: vec4<u32>) -> Steps {
    let w = bitcast<vec4<i32>>(words ^ vec4<u32>(0x88888888u));
    let top = vec4<u32>(28u);
    return Steps(
        mat4x4<f32>(
            vec4<f32>((w << vec4<u32>(28u)) >> top), vec4<f32>((w << vec4<u32>(24u)) >> top),
            vec4<f32>((w << vec4<u32>(20u)) >> top), vec4<f32>((w << vec4<u32>(16u)) >> top),
        ),
        mat4x4<f32>(
            vec4<f32>((w << vec4<u32>(12u)) >> top), vec4<f32>((w << vec4<u32>(8u)) >> top),
            vec4<f32>((w << vec4<u32>(4u)) >> top), vec4<f32>(w >> top),
        ),
    );
}

// The next word of each of four columns, and the scales of a group of theirs.
fn words_at(at: vec4<u32>) -> vec4<u32> {
    return vec4<u32>(weights[at.x], weights[at.y], weights[at.z], weights[at.w]);
}

fn scales_of(group: u32, columns: vec4<u32>) -> vec4<f32> {
    let at = vec4<u32>(group * p.scale_row) + columns;
    return vec4<f32>(scales[at.x], scales[at.y], scales[at.z], scales[at.w]);
}
