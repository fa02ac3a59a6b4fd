// Rotate the elements of heads in pairs: neighbours, or with HALVES, element i of the first half and element
// i of the second half of the first p.rotated elements. A kernel that includes this file declares the tables
// and Params with width, table and rotated, and defines:
// source_at(which, i), source_quad(which, i)  element i and quad i of the tensor number `which`
// row_of(i, heads)                            the table row of element i of a tensor with `heads` heads

// For element c of a head: its partner, whether c is the first of the pair, and the column of the table.
fn partner(c: u32) -> u32 {
    if (HALVES) { return select(c - p.rotated / 2u, c + p.rotated / 2u, is_first(c)); }
    return c ^ 1u;
}
fn is_first(c: u32) -> bool {
    if (HALVES) { return c < p.rotated / 2u; }
    return c % 2u == 0u;
}
fn frequency(c: u32) -> u32 {
    if (HALVES) { return c; }
    return c / 2u;
}

fn rotated_element(which: u32, i: u32, heads: u32) -> f32 {
    let c = i % p.width;
    if (c >= p.rotated) { return source_at(which, i); }
    let at = row_of(i, heads) * p.table + frequency(c);
    let mine = source_at(which, i) * f32(cos_table_at(at));
    let other = source_at(which, i - c + partner(c)) * f32(sin_table_at(at));
    return select(mine + other, mine - other, is_first(c));
}

// Rotate elements 4i .. 4i+3. With IN_QUADS, their partners are a quad too, and all four are computed at once.
fn rotated_quad(which: u32, i: u32, heads: u32) -> vec4<f32> {
    let first = 4u * i;
    if (!IN_QUADS) {
        return vec4<f32>(
            rotated_element(which, first, heads), rotated_element(which, first + 1u, heads),
            rotated_element(which, first + 2u, heads), rotated_element(which, first + 3u, heads),
        );
    }
    let c = first % p.width;
    let mine = source_quad(which, i);
    if (c >= p.rotated) { return mine; }
    let at = row_of(first, heads) * p.table + frequency(c);
    if (HALVES) {
        let other = source_quad(which, (first - c + partner(c)) / 4u) * select(1.0, -1.0, is_first(c));
        return mine * vec4<f32>(cos_table_quad(at / 4u)) + other * vec4<f32>(sin_table_quad(at / 4u));
    }
    let cosines = vec2<f32>(f32(cos_table_at(at)), f32(cos_table_at(at + 1u)));
    let sines = vec2<f32>(f32(sin_table_at(at)), f32(sin_table_at(at + 1u)));
    return mine * cosines.xxyy + mine.yxwz * vec4<f32>(-1.0, 1.0, -1.0, 1.0) * sines.xxyy;
}
