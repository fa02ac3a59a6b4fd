// Store four neighbouring columns of a row of a linear layer with coded weights, from their sums.
//#include store_four

fn finish_columns(row: u32, column: u32, sum: vec4<f32>) {
    var four = sum;
//#if HAS_BIAS
    let c = min(vec4<u32>(column) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(p.columns - 1u));
    four += vec4<f32>(bias[c.x], bias[c.y], bias[c.z], bias[c.w]);
//#end
    store_four(row, column, four);
}
