// Winograd's transform of the products to results. One invocation has a tile of a channel: 36 products, and 4 x 4
// results, of which some may lie outside of the image.
@group(0) @binding(0) var<storage, read> x: array<f32>;        // [splits, factors, channels, tiles]
@group(0) @binding(1) var<storage, read> bias: array<f32>;     // [channels]
@group(0) @binding(2) var<storage, read_write> y: array<f32>;  // [batch, channels, rows, columns]
@group(0) @binding(3) var<uniform> p: Params;
//#include winograd

alias Line = array<f32, 6>;

fn transformed(m: Line) -> vec4<f32> {
    let sum = m[1] + m[2];
    let difference = m[1] - m[2];
    let far_sum = m[3] + m[4];
    let far_difference = m[3] - m[4];
    return vec4<f32>(
        m[0] + sum + far_sum, fma(2.0, far_difference, difference), fma(4.0, far_sum, sum),
        fma(8.0, far_difference, difference) + m[5],
    );
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let tile = tile_of(flat_index(id, groups));
    if (!tile.exists) { return; }
    let step = p.batch * p.down * p.across * p.channels;
    var lines: array<vec4<f32>, 6>;  // rows of products, each as the columns of results
//#each r 6
    var products: Line;
//#each c 6
    products[c] = x[tile.at + (r * FACTORS + c) * step];
//#end c
    for (var split = 1u; split < p.splits; split++) {
//#each c 6
        products[c] += x[split * p.stride + tile.at + (r * FACTORS + c) * step];
//#end c
    }
    lines[r] = transformed(products);
//#end r
    var results: array<vec4<f32>, 4>;  // columns
//#each c 4
    results[c] = transformed(Line(lines[0][c], lines[1][c], lines[2][c], lines[3][c], lines[4][c], lines[5][c]));
//#end c
    let plane = (tile.image * p.channels + tile.channel) * p.rows * p.columns;
//#each r 4
    if (tile.row + r < p.rows) {
        var v = vec4<f32>(results[0][r], results[1][r], results[2][r], results[3][r]);
        if (p.has_bias == 1u) { v += bias[tile.channel]; }
        if (p.clamped == 1u) { v = clamp_nan4(v, vec4<f32>(p.low), vec4<f32>(p.high)); }
//#if EPILOGUE
        v = epilogue(v);
//#end
        let start = plane + (tile.row + r) * p.columns + tile.column;
//#each c 4
        if (tile.column + c < p.columns) { y[start + c] = v[c]; }
//#end c
    }
//#end r
}
