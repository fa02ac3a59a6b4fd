// Store neighbouring columns of a row of a linear layer with coded weights, from their sums. The rule may supply
// `apply(a, b, ..)`, an elementwise function of the results, which is applied first. Its second operand is `added`,
// or with HALVES, a is a result of the first half of the columns, and b the one of the second half in the same
// place. The kernel then computes the columns of both halves in turns.
//#if ADDED
@group(0) @binding(10) var<storage, read> added: array<f32>;  // as y
//#end
//#include store

// The column of W that a kernel computes in place of a column.
fn column_of(column: u32) -> u32 {
//#if HALVES
    return column / 2u + column % 2u * (p.columns / 2u);
//#else
    return column;
//#end
}

fn four_columns(column: u32) -> vec4<u32> { return min(vec4<u32>(column) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(p.columns - 1u)); }

// `count` columns: two or four.
fn finish_fused(row: u32, column: u32, count: u32, sums: vec4<f32>) {
    if (row >= p.rows || column >= p.columns) { return; }
    var four = sums;
    let c = four_columns(column);
//#if HAS_BIAS
    four += vec4<f32>(bias[column_of(c.x)], bias[column_of(c.y)], bias[column_of(c.z)], bias[column_of(c.w)]);
//#end
//#if HALVES
    let a = vec4<f32>(four.xz, four.xz);
    let b = vec4<f32>(four.yw, four.yw);
    let made = apply(a, b, b, b);
    let at = row * (p.columns / 2u) + column / 2u;
    y[at] = made.x;
    if (count > 2u && column + 2u < p.columns) { y[at + 1u] = made.y; }
//#else
//#if ADDED
    let first = vec4<u32>(row * p.columns) + c;
    let b = vec4<f32>(added[first.x], added[first.y], added[first.z], added[first.w]);
    four = apply(four, b, b, b);
//#elif APPLIED
    four = apply(four, four, four, four);
//#end
    store(row, column, four.x);
    store(row, column + 1u, four.y);
    if (count > 2u) {
        store(row, column + 2u, four.z);
        store(row, column + 3u, four.w);
    }
//#end
}
