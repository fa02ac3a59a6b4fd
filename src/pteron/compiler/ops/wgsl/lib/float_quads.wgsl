// The types of dot_quads for float operands.
alias quad_t = vec4<f32>;
alias sum4_t = vec4<f32>;

fn times(a: vec4<f32>, b: vec4<f32>) -> f32 { return dot(a, b); }
