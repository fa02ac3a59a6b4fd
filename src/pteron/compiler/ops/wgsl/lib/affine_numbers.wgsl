// The numbers that are scaled: the codes, or their entries in a table. CPUs convert signed integers in one
// step.
fn numbers(q: vec4<u32>) -> vec4<f32> {
//#if TABLE
    return vec4<f32>(table[q.x], table[q.y], table[q.z], table[q.w]);
//#elif SIGNED
    return vec4<f32>((vec4<i32>(q) << vec4<u32>(24u)) >> vec4<u32>(24u));
//#else
    return vec4<f32>(vec4<i32>(q));
//#end
}
