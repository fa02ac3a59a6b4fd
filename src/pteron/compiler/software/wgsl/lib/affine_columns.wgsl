// The codes of four columns, by steps in depth. affine_quads describes their layout. Eight codes are two words of
// BYTES, which are loaded together, or a part of a word of each of the planes.
//#if BYTES
@group(0) @binding(1) var<storage, read> weights: array<vec2<u32>>;  // [columns, row_bytes / 8]
//#else
@group(0) @binding(1) var<storage, read> weights: array<u32>;  // [columns, row_bytes / 4]
//#end

// The words of eight steps. The words of missing planes are 0.
struct Words { bytes: vec4<u32>, more_bytes: vec4<u32>, nibbles: vec4<u32>, pairs: vec4<u32>, singles: vec4<u32> }

fn words_of(columns: vec4<u32>, eight: u32) -> Words {
    var words: Words;
//#if BYTES
    let at = columns * (p.row_bytes / 8u) + vec4<u32>(eight);
    let a = weights[at.x];
    let b = weights[at.y];
    let c = weights[at.z];
    let d = weights[at.w];
    words.bytes = vec4<u32>(a.x, b.x, c.x, d.x);
    words.more_bytes = vec4<u32>(a.y, b.y, c.y, d.y);
//#else
    var at = columns * (p.row_bytes / 4u);
//#end
//#if NIBBLES
    words.nibbles = words_at(at + vec4<u32>(eight));
    at += vec4<u32>(p.depth / 8u);
//#end
//#if PAIRS
    words.pairs = words_at(at + vec4<u32>(eight / 2u)) >> vec4<u32>(16u * (eight & 1u));
    at += vec4<u32>((p.depth + 15u) / 16u);
//#end
//#if SINGLES
    words.singles = words_at(at + vec4<u32>(eight / 4u)) >> vec4<u32>(8u * (eight & 3u));
//#end
    return words;
}

//#if not BYTES
fn words_at(at: vec4<u32>) -> vec4<u32> {
    return vec4<u32>(weights[at.x], weights[at.y], weights[at.z], weights[at.w]);
}
//#end

// The codes of step i of eight.
fn step_of(words: Words, i: u32) -> vec4<f32> {
    var q = vec4<u32>(0u);
//#if BYTES
    q = (select(words.bytes, words.more_bytes, i > 3u) >> vec4<u32>(8u * (i & 3u))) & vec4<u32>(255u);
//#end
//#if NIBBLES
    q = (words.nibbles >> vec4<u32>(4u * i)) & vec4<u32>(15u);
//#end
//#if PAIRS
    q |= ((words.pairs >> vec4<u32>(2u * i)) & vec4<u32>(3u)) << vec4<u32>(BELOW_PAIRS);
//#end
//#if SINGLES
    q |= ((words.singles >> vec4<u32>(i)) & vec4<u32>(1u)) << vec4<u32>(BELOW_SINGLES);
//#end
    return numbers(q);
}

//#include affine_lines

//#include affine_numbers
