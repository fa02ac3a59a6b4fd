// Store four neighbouring columns of a product, from their sums. Columns past the end are not stored. The rule may
// supply `epilogue(value)`, an elementwise function that is applied first, and a tensor that is added then.
//#if OUTPUTS > 1
@group(0) @binding(5) var<storage, read_write> y2: array<ELEMENT>;  // the next columns of y
//#end
//#if OUTPUTS > 2
@group(0) @binding(6) var<storage, read_write> y3: array<ELEMENT>;  // those after y2
//#end

//#if ADDED
@group(0) @binding(7) var<storage, read> added: array<f32>;  // as y
//#end

//#include store_four

fn finish_four(matrix: u32, row: u32, column: u32, sum: vec4<f32>) {
    if (row >= p.rows) { return; }
    var value = sum;
    if (HAS_C) {
        value *= p.alpha;
        if (p.beta != 0.0) {
            let columns = min(vec4<u32>(column) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(p.columns - 1u));
            let at = vec4<u32>(matrix * p.c_batch + row * p.c_row) + columns * p.c_column;
            value += p.beta * vec4<f32>(c_at(at.x), c_at(at.y), c_at(at.z), c_at(at.w));
        }
    }
//#if EPILOGUE
    value = epilogue(value);
//#end
//#if ADDED
    let there = min(vec4<u32>(column) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(p.columns - 1u)) + row * p.columns;
    value += vec4<f32>(added[there.x], added[there.y], added[there.z], added[there.w]);
//#end
    store_four(matrix * p.rows + row, column, value);
}
