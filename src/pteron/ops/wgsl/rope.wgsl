// Rotary embedding of x by the table row start + s. The rule says how elements pair up.
@group(0) @binding(0) var<storage, read> x: array<x_word>;                  // [B, S, H, D]
@group(0) @binding(1) var<storage, read> cos_table: array<cos_table_word>;  // [positions, table]
@group(0) @binding(2) var<storage, read> sin_table: array<sin_table_word>;  // [positions, table]
@group(0) @binding(3) var<storage, read_write> y: array<y_word>;            // [B, S, H, D]
@group(0) @binding(4) var<uniform> start: vec4<i32>;
@group(0) @binding(5) var<uniform> p: Params;

struct Params { quads: u32, width: u32, heads: u32, length: u32, table: u32, turned: u32 }

fn value(i: u32) -> f32 {
    let c = i % p.width;
    if (c >= p.turned) { return f32(x_at(i)); }
    let s = (i / (p.width * p.heads)) % p.length;
    let at = (u32(start.x) + s) * p.table + frequency(c);
    let mine = f32(x_at(i)) * f32(cos_table_at(at));
    let other = f32(x_at(i - c + partner(c))) * f32(sin_table_at(at));
    return select(mine + other, mine - other, is_first(c));
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.quads) { return; }
    y_put(i, y_t4(vec4<f32>(value(4u * i), value(4u * i + 1u), value(4u * i + 2u), value(4u * i + 3u))));
}
