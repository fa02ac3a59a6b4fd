// The types of dot_quads for operands of four bytes in a word, which are multiplied at a time.
alias quad_t = u32;
alias step4_t = vec4<u32>;
alias sum4_t = vec4<i32>;
//#if SCALED
alias total4_t = vec4<f32>;
//#else
alias total4_t = vec4<i32>;
//#end

fn step_of(quad: u32, j: u32) -> u32 { return quad; }

fn plus_product(sum: vec4<i32>, x: u32, w: vec4<u32>) -> vec4<i32> {
    return sum + vec4<i32>(times(x, w.x), times(x, w.y), times(x, w.z), times(x, w.w));
}
