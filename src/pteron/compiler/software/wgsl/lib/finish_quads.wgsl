// Store four neighbouring columns of a product, from their sums, as one quad. The columns of each output are a
// multiple of 4. If BIAS, all rows of c are equal and its columns are neighbours, so it is read once for all rows.
//#if OUTPUTS > 1
@group(0) @binding(5) var<storage, read_write> y2: array<y2_word>;  // the next columns of y
//#end
//#if OUTPUTS > 2
@group(0) @binding(6) var<storage, read_write> y3: array<y3_word>;  // those after y2
//#end
//#if ADDED
@group(0) @binding(7) var<storage, read> added: array<vec4<f32>>;  // as y
//#end

//#include outputs

fn bias_of(column: u32) -> vec4<f32> {
    if (BIAS) { return p.beta * vec4<f32>(c_quad(column / 4u)); }
    return vec4<f32>();
}

fn finish_row(matrix: u32, row: u32, column: u32, sum: vec4<f32>, bias: vec4<f32>) {
    var value = sum;
    if (BIAS) { value = p.alpha * value + bias; }
    if (HAS_C && !BIAS) {
        value *= p.alpha;
        if (p.beta != 0.0) {
            let at = vec4<u32>(matrix * p.c_batch + row * p.c_row)
                + (column + vec4<u32>(0u, 1u, 2u, 3u)) * p.c_column;
            value += p.beta * vec4<f32>(c_at(at.x), c_at(at.y), c_at(at.z), c_at(at.w));
        }
    }
//#if EPILOGUE
    value = epilogue(value);
//#end
//#if ADDED
    value += added[(row * p.columns + column) / 4u];
//#end
    let at = place(matrix * p.rows + row, column);
//#if OUTPUTS > 1
    if (at.output == 2u) {
        y2_put(at.index / 4u, value);
        return;
    }
//#end
//#if OUTPUTS > 2
    if (at.output == 3u) {
        y3_put(at.index / 4u, value);
        return;
    }
//#end
    y_put(at.index / 4u, value);
}
