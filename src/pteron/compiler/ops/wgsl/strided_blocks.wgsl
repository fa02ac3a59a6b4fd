// Permutations in blocks of 4 x 4 elements: a block is four quads of x, and transposed it is four quads of y.
@group(0) @binding(0) var<storage, read> x: array<x_word>;        // at offset and strides
@group(0) @binding(1) var<storage, read_write> y: array<y_word>;  // contiguous
@group(0) @binding(2) var<uniform> p: Params;

struct Params {
    blocks: u32,
    rank: u32,
    offset: i32,
    across: u32,  // elements of x from one quad of a block to the next
    down: u32,    // elements of y from one quad of a block to the next
    sizes: array<vec4<u32>, 2>,    // of the output, in blocks
    strides: array<vec4<i32>, 2>,  // of x, from one block to the next
    targets: array<vec4<u32>, 2>,  // of y, from one block to the next
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.blocks) { return; }
    var rest = i;
    var source = p.offset;
    var goal = 0u;
    for (var d = p.rank; d > 0u; d--) {
        let size = p.sizes[(d - 1u) >> 2u][(d - 1u) & 3u];
        let above = rest / size;
        let place = rest - above * size;
        source += i32(place) * p.strides[(d - 1u) >> 2u][(d - 1u) & 3u];
        goal += place * p.targets[(d - 1u) >> 2u][(d - 1u) & 3u];
        rest = above;
    }
    let from_x = u32(source);
    let a = x_quad(from_x / 4u);
    let b = x_quad((from_x + p.across) / 4u);
    let c = x_quad((from_x + 2u * p.across) / 4u);
    let d = x_quad((from_x + 3u * p.across) / 4u);
    y_put(goal / 4u, y_t4(y_t(a[0]), y_t(b[0]), y_t(c[0]), y_t(d[0])));
    y_put((goal + p.down) / 4u, y_t4(y_t(a[1]), y_t(b[1]), y_t(c[1]), y_t(d[1])));
    y_put((goal + 2u * p.down) / 4u, y_t4(y_t(a[2]), y_t(b[2]), y_t(c[2]), y_t(d[2])));
    y_put((goal + 3u * p.down) / 4u, y_t4(y_t(a[3]), y_t(b[3]), y_t(c[3]), y_t(d[3])));
}
