// Eight neighbouring elements of keys and of values.
struct EightElements { a: vec4<f32>, b: vec4<f32> }

//#if HALF_CACHE
//#include four_words
fn eight_halves(four: four_t) -> EightElements {
    let words = four_words(four);
    return EightElements(
        vec4<f32>(unpack2x16float(words.x), unpack2x16float(words.y)),
        vec4<f32>(unpack2x16float(words.z), unpack2x16float(words.w)),
    );
}
fn k_eight(i: u32) -> EightElements { return eight_halves(k[i]); }
fn v_eight(i: u32) -> EightElements { return eight_halves(v[i]); }
//#else
fn k_eight(i: u32) -> EightElements {
    return EightElements(vec4<f32>(k_quad(2u * i)), vec4<f32>(k_quad(2u * i + 1u)));
}
fn v_eight(i: u32) -> EightElements {
    return EightElements(vec4<f32>(v_quad(2u * i)), vec4<f32>(v_quad(2u * i + 1u)));
}
//#end
