// The scales of coded weights. A weight is scale * code + start, or scale * table[code]. Each group of a
// column has a scale. With minima, the start is stored after the scale. Without minima, the start is -scale *
// zero, and all groups have one zero, or each has its zero point. Scales are float16 (two per word), float32, or
// LEVELS of super-blocks. A super-block has BLOCK_GROUPS groups: first a float32 factor, or two with minima, and
// then a signed byte for each group, or two with minima.
@group(0) @binding(2) var<storage, read> scales: array<u32>;  // [columns, groups or super-blocks]
//#if ZERO_POINTS
@group(0) @binding(3) var<storage, read> zeros: array<zeros_word>;  // [columns, groups]
//#end
//#if TABLE
@group(0) @binding(3) var<storage, read> table: array<f32>;  // [2^bits]
//#end

struct Line { scale: f32, start: f32 }

fn zero_of(i: u32) -> f32 {
//#if ZERO_POINTS
    return f32(zeros_at(i));
//#else
    return p.zero;
//#end
}

fn line_of(column: u32, group: u32) -> Line {
    let i = column * p.scale_column + group / BLOCK_GROUPS * p.scale_group;
//#if SCALES == float16
//#if MINIMA
    let both = unpack2x16float(scales[i]);
    return Line(both.x, both.y);
//#else
    let scale = unpack2x16float(scales[i / 2u] >> (16u * (i & 1u))).x;
    return Line(scale, -zero_of(i) * scale);
//#end
//#elif SCALES == float32
//#if MINIMA
    return Line(bitcast<f32>(scales[2u * i]), bitcast<f32>(scales[2u * i + 1u]));
//#else
    let scale = bitcast<f32>(scales[i]);
    return Line(scale, -zero_of(i) * scale);
//#end
//#else
    // Levels of super-blocks.
    let n = group % BLOCK_GROUPS;
//#if MINIMA
    let levels = bitcast<i32>(scales[i + 2u + n / 2u] >> (16u * (n & 1u)));
    let scale = bitcast<f32>(scales[i]) * f32(extractBits(levels, 0u, 8u));
    return Line(scale, bitcast<f32>(scales[i + 1u]) * f32(extractBits(levels, 8u, 8u)));
//#else
    let level = extractBits(bitcast<i32>(scales[i + 1u + n / 4u]), 8u * (n & 3u), 8u);
    let scale = bitcast<f32>(scales[i]) * f32(level);
    return Line(scale, -p.zero * scale);
//#end
//#end
}
