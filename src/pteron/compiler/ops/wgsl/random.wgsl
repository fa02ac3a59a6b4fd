// Random elements by Philox 4x32 with ten rounds. The rule supplies `drawn`, which computes numbers from
// random bits.
@group(0) @binding(0) var<storage, read> counter: array<vec2<i32>>;  // the number of the call, and of the node
@group(0) @binding(1) var<storage, read_write> y: array<y_word>;     // [n]
@group(0) @binding(2) var<uniform> p: Params;

struct Params { quads: u32 }

// The upper half of the 64-bit product.
fn high_product(a: u32, b: u32) -> u32 {
    let low = (a & 0xffffu) * (b & 0xffffu);
    let cross1 = (a >> 16u) * (b & 0xffffu) + (low >> 16u);
    let cross2 = (a & 0xffffu) * (b >> 16u) + (cross1 & 0xffffu);
    return (a >> 16u) * (b >> 16u) + (cross1 >> 16u) + (cross2 >> 16u);
}

fn philox(place: vec4<u32>, seed: vec2<u32>) -> vec4<u32> {
    var c = place;
    var key = seed;
    for (var round = 0; round < 10; round++) {
        let first = high_product(0xd2511f53u, c.x);
        let second = high_product(0xcd9e8d57u, c.z);
        c = vec4<u32>(second ^ c.y ^ key.x, 0xcd9e8d57u * c.z, first ^ c.w ^ key.y, 0xd2511f53u * c.x);
        key += vec2<u32>(0x9e3779b9u, 0xbb67ae85u);
    }
    return c;
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.quads) { return; }
    let at = bitcast<vec2<u32>>(counter[0]);
    y_put(i, y_t4(drawn(philox(vec4<u32>(i, at.x, 0u, 0u), vec2<u32>(at.y, 0u)))));
}
