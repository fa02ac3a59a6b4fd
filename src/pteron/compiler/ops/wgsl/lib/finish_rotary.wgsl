// Store four columns of the queries, keys and values: queries and keys are rotated in halves, keys and values go to
// their caches. Teams compute the columns of a head in turns: one of the first half, one of the second. So a lane
// has pairs that rotate together, and neighbours that share a word of a cache.
@group(0) @binding(12) var<storage, read> turns: array<f32>;  // [positions, 2 * HEAD], cosines and then sines
@group(0) @binding(13) var<storage, read_write> key_cache: array<key_cache_word>;      // [capacity, Hkv, HEAD]
@group(0) @binding(14) var<storage, read_write> value_cache: array<value_cache_word>;  // [capacity, Hkv, HEAD]
@group(0) @binding(15) var<uniform> start: vec4<i32>;      // the table row of the first token
@group(0) @binding(16) var<uniform> start_pos: vec4<i32>;  // the position of the first token in the caches

fn column_of(column: u32) -> u32 {
    let c = column % HEAD;
    return column - c + c / 2u + c % 2u * (HEAD / 2u);
}

fn turns_at(i: u32) -> vec2<f32> { return vec2<f32>(turns[i], turns[i + 1u]); }

// Two neighbours, from an even element on.
fn keep(is_value: bool, i: u32, two: vec2<f32>) {
//#if IN_HALVES
    if (is_value) { value_cache[i / 4u][i / 2u % 2u] = pack2x16float(two); }
    else { key_cache[i / 4u][i / 2u % 2u] = pack2x16float(two); }
//#else
    if (is_value) {
        value_cache_set(i, two.x);
        value_cache_set(i + 1u, two.y);
    } else {
        key_cache_set(i, two.x);
        key_cache_set(i + 1u, two.y);
    }
//#end
}

fn finish_rotary(row: u32, column: u32, sums: vec4<f32>) {
    if (row >= p.rows || column >= p.columns) { return; }
    let first = column_of(column);
    let second = first + HEAD / 2u;
    var low = sums.xz;
    var high = sums.yw;
//#if HAS_BIAS
    low += vec2<f32>(bias[first], bias[first + 1u]);
    high += vec2<f32>(bias[second], bias[second + 1u]);
//#end
    if (column < p.third) {
        let at = (u32(start.x) + row) * 2u * HEAD + first % HEAD;
        let other = low * turns_at(at + HEAD + HEAD / 2u);
        low = low * turns_at(at) - high * turns_at(at + HEAD);
        high = high * turns_at(at + HEAD / 2u) + other;
    }
    if (column < p.second) {
        let at = row * p.second;
        y[at + first] = low.x;
        y[at + first + 1u] = low.y;
        y[at + second] = high.x;
        y[at + second + 1u] = high.y;
        return;
    }
    let is_value = column >= p.third;
    let at = (u32(start_pos.x) + row) * (p.third - p.second) - select(p.second, p.third, is_value);
    keep(is_value, at + first, low);
    keep(is_value, at + second, high);
}
