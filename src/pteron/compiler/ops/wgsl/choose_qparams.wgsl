// The scale and zero point of four neighbouring blocks, from their ranges. The rule supplies `choose`.
@group(0) @binding(0) var<storage, read> ranges: array<vec2<f32>>;            // [blocks, PARTS]
@group(0) @binding(1) var<storage, read_write> scales: array<scales_word>;    // [blocks]
@group(0) @binding(2) var<storage, read_write> zeros: array<zeros_word>;      // [blocks]
@group(0) @binding(3) var<uniform> p: Params;

struct Params { blocks: u32, quant_min: f32, quant_max: f32, eps: f32 }

struct Choice { scale: vec4<f32>, zero: vec4<f32> }

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (4u * i >= p.blocks) { return; }
    var low = vec4<f32>(0.0);
    var high = vec4<f32>(0.0);
    for (var c = 0u; c < min(4u, p.blocks - 4u * i); c++) {
        for (var part = 0u; part < PARTS; part++) {
            let range = ranges[(4u * i + c) * PARTS + part];
            low[c] = min(low[c], range.x);
            high[c] = max(high[c], range.y);
        }
    }
    let choice = choose(low, high);
    scales_put(i, scales_t4(choice.scale));
    zeros_put(i, zeros_t4(choice.zero));
}
