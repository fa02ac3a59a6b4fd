// Convolution of unfolded images (see unfold), as a matrix product for each image and group of channels. One
// invocation computes CHANNELS output channels of four neighbouring columns of a row. In each step every lane
// loads the weights of four channels, and the lanes exchange them. So a step has only two loads, of which
// software adapters make long code. Needs subgroups of at least eight lanes.
//#trusted
@group(0) @binding(0) var<storage, read> x: array<x_word>;            // [batch * groups, depth / taps, rows, columns]
@group(0) @binding(1) var<storage, read> weight: array<weight_word>;  // [depth, groups * channels]
@group(0) @binding(2) var<storage, read> bias: array<bias_word>;      // [groups * channels]
@group(0) @binding(3) var<storage, read_write> y: array<y_word>;      // [batch, groups * channels, height, width]
@group(0) @binding(4) var<uniform> p: Params;

struct Params {
    matrices: u32,  // batch * groups
    groups: u32,
    channels: u32,  // of a group
    depth: u32,     // inputs of a group * window_rows * window_columns
    window_rows: u32,
    window_columns: u32,
    rows: u32,        // of a plane of x
    row_stride: u32,
    row_dilation: u32,
    height: u32,
    width: u32,
    has_bias: u32,  // 0 or 1, and not a define: compiling this kernel takes long
    clamped: u32,
    low: f32,
    high: f32,
}

// The weights of four channels from element `at` on, which is at most `limit`.
fn four_weights(at: u32, limit: u32) -> vec4<f32> {
//#if QUAD_WEIGHTS
    return vec4<f32>(weight_quad(min(at, limit) / 4u));
//#else
    let four = min(vec4<u32>(at) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(limit));
    return vec4<f32>(vec4(weight_at(four.x), weight_at(four.y), weight_at(four.z), weight_at(four.w)));
//#end
}

//#include put_four

@compute @workgroup_size(LANES)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
    @builtin(subgroup_invocation_id) member: u32,
) {
    let across = (p.width + 3u) / 4u;
    let quads = p.height * across;
    let blocks = (quads + LANES - 1u) / LANES;
    let tiles = (p.channels + CHANNELS - 1u) / CHANNELS;
    let tile = flat_group(group, groups) / blocks;
    let matrix = tile / tiles;
    if (matrix >= p.matrices) { return; }
    // Quads and channels past the end repeat others, because all lanes must exchange values. They are not
    // stored.
    let quad = flat_group(group, groups) % blocks * LANES + lane;
    let row = min(quad, quads - 1u) / across;
    let column = min(quad, quads - 1u) % across;
    let in_group = tile % tiles * CHANNELS;
    let all = p.groups * p.channels;
    let channel = matrix % p.groups * p.channels + in_group;
    var from_w = channel + 4u * (member & (QUADS - 1u));
    let last_w = p.depth * all - 1u;
    // A line is the row of one tap in one row of x. Lines of a row are neighbours, and so are rows.
    let line = p.window_columns * across;
    let next_row = p.row_dilation * line - (p.window_columns - 1u) * across;
    let next_plane = p.rows * line - (p.window_rows - 1u) * p.row_dilation * line - (p.window_columns - 1u) * across;
    let planes = p.depth / (p.window_rows * p.window_columns);
    let first_x = (matrix * planes * p.rows + row * p.row_stride) * line + column;
    var from_x = first_x;
    var tap_row = 1u;
    var tap_column = 1u;
    var sums: array<vec4<f32>, CHANNELS>;
    for (var k = 0u; k < p.depth; k += STEPS) {
        var v: array<vec4<f32>, STEPS>;
        var w: array<vec4<f32>, STEPS>;
//#each s STEPS
        // Steps past the end of the depth repeat an address and add zeros.
        let inside = k + s < p.depth;
        v[s] = select(vec4<f32>(0.0), vec4<f32>(x_quad(select(first_x, from_x, inside))), inside);
        w[s] = four_weights(from_w, last_w);
        let row_ends = tap_column == p.window_columns;
        let plane_ends = row_ends && tap_row == p.window_rows;
        from_x += select(select(across, next_row, row_ends), next_plane, plane_ends);
        tap_row = select(tap_row + select(0u, 1u, row_ends), 1u, plane_ends);
        tap_column = select(tap_column + 1u, 1u, row_ends);
        from_w = select(from_w, from_w + all, inside);
//#end s
//#each q QUADS
        var four: array<vec4<f32>, STEPS>;
//#each s STEPS
        four[s] = subgroupBroadcast(w[s], q);
//#end s
//#each s STEPS
        sums[4u * q] = fma(v[s], four[s].xxxx, sums[4u * q]);
//#end s
//#each s STEPS
        sums[4u * q + 1u] = fma(v[s], four[s].yyyy, sums[4u * q + 1u]);
//#end s
//#each s STEPS
        sums[4u * q + 2u] = fma(v[s], four[s].zzzz, sums[4u * q + 2u]);
//#end s
//#each s STEPS
        sums[4u * q + 3u] = fma(v[s], four[s].wwww, sums[4u * q + 3u]);
//#end s
//#end q
    }
    if (quad >= quads) { return; }
    // A loop of unknown length is not unrolled, so it compiles much faster. Its array has a variable index.
    var results = sums;
    let end = min(CHANNELS, p.channels - in_group);
    for (var c = 0u; c < end; c++) {
        var result = results[c];
        if (p.has_bias == 1u) { result += f32(bias_at(channel + c)); }
        if (p.clamped == 1u) { result = clamp_nan4(result, vec4<f32>(p.low), vec4<f32>(p.high)); }
//#if EPILOGUE
        result = epilogue(result);
//#end
        let at = ((matrix / p.groups * all + channel + c) * p.height + row) * p.width + 4u * column;
        put_four(at, p.width - 4u * column, result);
    }
}
