// Round rows to 8 bits. A block of BLOCK elements becomes whole numbers from -127 to 127 and a factor. With NORMED,
// rows are normalized first (an RMS norm). A workgroup computes a row. lib/rounded_row describes the result.
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;     // [rows, depth / 4]
@group(0) @binding(1) var<storage, read_write> y: array<u32>;      // [rows, words]
@group(0) @binding(2) var<uniform> p: Params;
//#if NORMED
@group(0) @binding(3) var<storage, read> norm: array<vec4<f32>>;  // [depth / 4]
//#end

struct Params { rows: u32, depth: u32, eps: f32 }

//#include rounded_row

const PER = BLOCK / 4u;  // quads of a block

var<workgroup> found: array<f32, LANES>;
var<workgroup> sums: array<i32, LANES>;

@compute @workgroup_size(LANES)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = flat_group(group, groups);
    if (row >= p.rows) { return; }
    let quads = p.depth / 4u;
    var own: array<vec4<f32>, TURNS>;
    for (var turn = 0u; turn < TURNS; turn++) {
        let k = lane + turn * LANES;
        own[turn] = select(vec4<f32>(0.0), x[row * quads + min(k, quads - 1u)], k < quads);
    }
//#if NORMED
    var square = 0.0;
    for (var turn = 0u; turn < TURNS; turn++) { square += dot(own[turn], own[turn]); }
    found[lane] = square;
    for (var half = LANES / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (lane < half) { found[lane] += found[lane + half]; }
    }
    let inverse = inverseSqrt(workgroupUniformLoad(&found[0]) / f32(p.depth) + p.eps);
    for (var turn = 0u; turn < TURNS; turn++) {
        own[turn] *= inverse * norm[min(lane + turn * LANES, quads - 1u)];
    }
//#end
    for (var turn = 0u; turn < TURNS; turn++) {
        let k = lane + turn * LANES;
        let sizes = abs(own[turn]);
        found[lane] = max(max(sizes.x, sizes.y), max(sizes.z, sizes.w));
        workgroupBarrier();
        var highest = 0.0;
        for (var n = 0u; n < PER; n++) { highest = max(highest, found[lane / PER * PER + n]); }
        let codes = vec4<i32>(round(own[turn] * select(127.0 / highest, 0.0, highest == 0.0)));
        sums[lane] = codes.x + codes.y + codes.z + codes.w;
        workgroupBarrier();
        if (k < quads) { y[first_word(row) + k] = pack4xI8(codes); }
        if (k < quads && lane % PER == 0u) {
            var sum = 0;
            for (var n = 0u; n < PER; n++) { sum += sums[lane + n]; }
            let at = first_word(row) + quads + 2u * (k / PER);
            y[at] = bitcast<u32>(highest / 127.0);
            y[at + 1u] = bitcast<u32>(highest / 127.0 * f32(sum));
        }
    }
}
