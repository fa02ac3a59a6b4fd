// The sums of eight rows of four columns. Lane i has x of row i.
struct Eight {
    n0: vec4<f32>, n1: vec4<f32>, n2: vec4<f32>, n3: vec4<f32>,
    n4: vec4<f32>, n5: vec4<f32>, n6: vec4<f32>, n7: vec4<f32>,
}

// Add the products of four steps in depth.
fn add_eight(x: vec4<f32>, w: mat4x4<f32>, sum: Eight) -> Eight {
    return Eight(
        add_four(subgroupBroadcast(x, 0u), w, sum.n0), add_four(subgroupBroadcast(x, 1u), w, sum.n1),
        add_four(subgroupBroadcast(x, 2u), w, sum.n2), add_four(subgroupBroadcast(x, 3u), w, sum.n3),
        add_four(subgroupBroadcast(x, 4u), w, sum.n4), add_four(subgroupBroadcast(x, 5u), w, sum.n5),
        add_four(subgroupBroadcast(x, 6u), w, sum.n6), add_four(subgroupBroadcast(x, 7u), w, sum.n7),
    );
}

// Add the products of one step in depth.
fn add_step(x: f32, w: vec4<f32>, sum: Eight) -> Eight {
    return Eight(
        fma(vec4<f32>(subgroupBroadcast(x, 0u)), w, sum.n0), fma(vec4<f32>(subgroupBroadcast(x, 1u)), w, sum.n1),
        fma(vec4<f32>(subgroupBroadcast(x, 2u)), w, sum.n2), fma(vec4<f32>(subgroupBroadcast(x, 3u)), w, sum.n3),
        fma(vec4<f32>(subgroupBroadcast(x, 4u)), w, sum.n4), fma(vec4<f32>(subgroupBroadcast(x, 5u)), w, sum.n5),
        fma(vec4<f32>(subgroupBroadcast(x, 6u)), w, sum.n6), fma(vec4<f32>(subgroupBroadcast(x, 7u)), w, sum.n7),
    );
}

//#include add_four
