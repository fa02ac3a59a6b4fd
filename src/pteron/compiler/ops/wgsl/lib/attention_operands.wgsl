@group(0) @binding(0) var<storage, read> q: array<q_word>;        // [B, S, Hq, D] in any order of dimensions
@group(0) @binding(1) var<storage, read> k: array<k_word>;        // [B, T, Hkv, D]
@group(0) @binding(2) var<storage, read> v: array<v_word>;        // [B, T, Hkv, D]
@group(0) @binding(3) var<uniform> start_pos: vec4<i32>;
@group(0) @binding(4) var<uniform> p: Params;
//#if MASK != none
@group(0) @binding(5) var<storage, read> mask: array<mask_word>;  // broadcast to [B, Hq, S, T]
//#end
//#include attention_segments

//#include attention_params
