// The scales of coded weights. A weight is scale * code + start, or scale * table[code]. Each group of a
// column has a scale. With minima, the start is stored after the scale. Without minima, the start is -scale *
// p.zero. Scales are float16 (two per word) or float32.
@group(0) @binding(2) var<storage, read> scales: array<u32>;  // [columns, groups] scales and minima
//#if TABLE
@group(0) @binding(3) var<storage, read> table: array<f32>;  // [2^bits]
//#end

struct Line { scale: f32, start: f32 }

fn line_of(column: u32, group: u32) -> Line {
    let i = column * p.scale_column + group * p.scale_group;
//#if HALF_SCALES
    let scale = unpack2x16float(scales[i / 2u] >> (16u * (i & 1u))).x;
    return Line(scale, -p.zero * scale);
//#end
//#if FULL_SCALES
    let scale = bitcast<f32>(scales[i]);
    return Line(scale, -p.zero * scale);
//#end
//#if HALF_MINIMA
    let both = unpack2x16float(scales[i]);
    return Line(both.x, both.y);
//#end
//#if FULL_MINIMA
    return Line(bitcast<f32>(scales[2u * i]), bitcast<f32>(scales[2u * i + 1u]));
//#end
}
