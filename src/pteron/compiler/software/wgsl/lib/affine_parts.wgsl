// The codes of four neighbouring columns, in parts of 16 steps in depth. The weights of a column follow each other
// one by one, or those of a part of four columns do (INTERLEAVED, see interleaved_weights.py).
//#if BITS == 4
struct Columns { a: vec2<u32>, b: vec2<u32>, c: vec2<u32>, d: vec2<u32> }
//#else
struct Columns { a: vec4<u32>, b: vec4<u32>, c: vec4<u32>, d: vec4<u32> }
//#end

// first_part: the first part of four columns, for columns_at. The next part has the next number.
//#if INTERLEAVED
fn first_part(columns: vec4<u32>) -> vec4<u32> { return vec4<u32>(columns.x / 4u * (p.row_bytes / (2u * BITS))); }

//#if BITS == 4
@group(0) @binding(1) var<storage, read> weights: array<eight_t>;  // [columns / 4, parts]
fn columns_at(at: vec4<u32>) -> Columns {
    let words = eight_words(weights[at.x]);
    return Columns(words.low.xy, words.low.zw, words.high.xy, words.high.zw);
}
//#else
@group(0) @binding(1) var<storage, read> weights: array<eight_t>;  // [columns / 4, parts, 2]
fn columns_at(at: vec4<u32>) -> Columns {
    let words = eight_words(weights[2u * at.x]);
    let more = eight_words(weights[2u * at.x + 1u]);
    return Columns(words.low, words.high, more.low, more.high);
}
//#end
//#else
fn first_part(columns: vec4<u32>) -> vec4<u32> { return columns * (p.row_bytes / (2u * BITS)); }

//#if BITS == 4
@group(0) @binding(1) var<storage, read> weights: array<two_t>;    // [columns, parts]
fn columns_at(at: vec4<u32>) -> Columns {
    return Columns(
        two_words(weights[at.x]), two_words(weights[at.y]), two_words(weights[at.z]), two_words(weights[at.w])
    );
}
//#else
@group(0) @binding(1) var<storage, read> weights: array<four_t>;   // [columns, parts]
fn columns_at(at: vec4<u32>) -> Columns {
    return Columns(
        four_words(weights[at.x]), four_words(weights[at.y]), four_words(weights[at.z]), four_words(weights[at.w])
    );
}
//#end
//#end

// The codes of a step of a part.
fn step_codes(columns: Columns, step: u32) -> vec4<f32> {
    let word = step * BITS / 32u;
    let words = vec4<u32>(columns.a[word], columns.b[word], columns.c[word], columns.d[word]);
    return codes_at(words, step % (32u / BITS));
}

//#include affine_places
//#include eight_words
//#include four_words
//#include two_words
