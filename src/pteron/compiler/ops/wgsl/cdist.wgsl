// y[.., i, j] = the norm of a[.., i, :] - b[.., j, :]. The rule supplies `add` and `root`.
@group(0) @binding(0) var<storage, read> a: array<a_word>;        // [.., rows, width]
@group(0) @binding(1) var<storage, read> b: array<b_word>;        // [.., columns, width]
@group(0) @binding(2) var<storage, read_write> y: array<y_word>;  // [sizes.., rows, columns]
@group(0) @binding(3) var<uniform> p: Params;

// The strides are in matrices.
struct Params {
    quads: u32,
    rows: u32,
    columns: u32,
    width: u32,
    norm: f32,
    rank: u32,
    sizes: array<vec4<u32>, 2>,
    a_strides: array<vec4<u32>, 2>,
    b_strides: array<vec4<u32>, 2>,
}

fn distance_at(i: u32) -> y_t {
    var rest = i / p.columns / p.rows;
    var a_matrix = 0u;
    var b_matrix = 0u;
    for (var d = p.rank; d > 0u; d--) {
        let word = (d - 1u) >> 2u;
        let part = (d - 1u) & 3u;
        let at = rest % p.sizes[word][part];
        a_matrix += at * p.a_strides[word][part];
        b_matrix += at * p.b_strides[word][part];
        rest /= p.sizes[word][part];
    }
    let a_row = (a_matrix * p.rows + i / p.columns % p.rows) * p.width;
    let b_row = (b_matrix * p.columns + i % p.columns) * p.width;
    var sum = 0.0;
    for (var k = 0u; k < p.width; k++) {
        sum = add(sum, abs(f32(a_at(a_row + k)) - f32(b_at(b_row + k))));
    }
    return y_t(root(sum));
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.quads) { return; }
    y_put(i, y_t4(distance_at(4u * i), distance_at(4u * i + 1u), distance_at(4u * i + 2u), distance_at(4u * i + 3u)));
}
