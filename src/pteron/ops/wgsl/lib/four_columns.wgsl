// Eight steps in depth of four columns, and the product with eight values of x that eight lanes hold.
struct Eight {
    n0: vec4<f32>, n1: vec4<f32>, n2: vec4<f32>, n3: vec4<f32>,
    n4: vec4<f32>, n5: vec4<f32>, n6: vec4<f32>, n7: vec4<f32>,
}

fn dot_eight(x: f32, w: Eight, sum: vec4<f32>) -> vec4<f32> {
    var s = fma(vec4<f32>(subgroupBroadcast(x, 0u)), w.n0, sum);
    s = fma(vec4<f32>(subgroupBroadcast(x, 1u)), w.n1, s);
    s = fma(vec4<f32>(subgroupBroadcast(x, 2u)), w.n2, s);
    s = fma(vec4<f32>(subgroupBroadcast(x, 3u)), w.n3, s);
    s = fma(vec4<f32>(subgroupBroadcast(x, 4u)), w.n4, s);
    s = fma(vec4<f32>(subgroupBroadcast(x, 5u)), w.n5, s);
    s = fma(vec4<f32>(subgroupBroadcast(x, 6u)), w.n6, s);
    return fma(vec4<f32>(subgroupBroadcast(x, 7u)), w.n7, s);
}

// The part of four neighbouring columns that lies inside y: [rows, columns].
fn store_four(row: u32, column: u32, value: vec4<f32>) {
    if (row >= p.rows) { return; }
    let at = row * p.columns + column;
    if (column < p.columns) { y[at] = value.x; }
    if (column + 1u < p.columns) { y[at + 1u] = value.y; }
    if (column + 2u < p.columns) { y[at + 2u] = value.z; }
    if (column + 3u < p.columns) { y[at + 3u] = value.w; }
}
