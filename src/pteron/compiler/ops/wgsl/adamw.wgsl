// One AdamW step in place: update the moving means of the gradient and of its square, then decay and update
// the weights.
@group(0) @binding(0) var<storage, read_write> param: array<param_word>;    // [n]
@group(0) @binding(1) var<storage, read_write> mean: array<mean_word>;      // [n]
@group(0) @binding(2) var<storage, read_write> square: array<square_word>;  // [n]
@group(0) @binding(3) var<storage, read> grad: array<grad_word>;            // [n]
@group(0) @binding(4) var<uniform> p: Params;

struct Params {
    quads: u32,
    lr: f32,
    keep: f32,       // 1 - lr * weight decay
    beta1: f32,
    rest1: f32,      // 1 - beta1
    beta2: f32,
    rest2: f32,      // 1 - beta2
    eps: f32,
    correction1: f32,
    correction2: f32,
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.quads) { return; }
    let g = vec4<f32>(grad_quad(i));
    let first = p.beta1 * vec4<f32>(mean_quad(i)) + p.rest1 * g;
    let second = p.beta2 * vec4<f32>(square_quad(i)) + p.rest2 * g * g;
    let step = (first / p.correction1) / (sqrt(second / p.correction2) + p.eps);
    mean_put(i, mean_t4(first));
    square_put(i, square_t4(second));
    param_put(i, param_t4(p.keep * vec4<f32>(param_quad(i)) - p.lr * step));
}
