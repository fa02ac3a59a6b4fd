// The types of dot_quads for operands that are rounded to float16. The sums of a step are float16, too, and are added
// up in float32.
alias quad_t = vec4<f16>;
alias step4_t = vec4<f16>;
alias sum4_t = vec4<f16>;
alias total4_t = vec4<f32>;

fn step_of(quad: vec4<f16>, j: u32) -> f16 { return quad[j]; }

fn plus_product(sum: vec4<f16>, x: f16, w: vec4<f16>) -> vec4<f16> { return fma(vec4<f16>(x), w, sum); }
