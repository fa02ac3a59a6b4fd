// The types of dot_quads for float operands.
alias quad_t = vec4<f32>;
alias step4_t = vec4<f32>;
alias sum4_t = vec4<f32>;
alias total4_t = vec4<f32>;

fn times(a: vec4<f32>, b: vec4<f32>) -> f32 { return dot(a, b); }

fn step_of(quad: vec4<f32>, j: u32) -> f32 { return quad[j]; }

fn plus_product(sum: vec4<f32>, x: f32, w: vec4<f32>) -> vec4<f32> { return fma(vec4<f32>(x), w, sum); }
