// The code of one weight as a number. A row may begin at any byte. affine_quads describes the layout of
// codes.
fn code_at(column: u32, step: u32) -> f32 {
//#if INTERLEAVED
    let part_bytes = p.row_bytes / (p.depth / 16u);
    var at = ((column / 4u * (p.depth / 16u) + step / 16u) * 4u + column % 4u) * part_bytes;
    let k = step % 16u;
//#else
    var at = column * p.row_bytes;  // in bytes
    let k = step;
//#end
    var q = 0u;
//#if BYTES
    q = bits_at(at, k, 8u);
//#end
//#if NIBBLES
    q = bits_at(at, k, 4u);
    at += 4u * ((p.depth + 7u) / 8u);
//#end
//#if PAIRS
    q |= bits_at(at, k, 2u) << BELOW_PAIRS;
    at += 4u * ((p.depth + 15u) / 16u);
//#end
//#if SINGLES
    q |= bits_at(at, k, 1u) << BELOW_SINGLES;
//#end
    return numbers(vec4<u32>(q)).x;
}

// Element k of a plane that begins at a byte.
fn bits_at(plane: u32, k: u32, width: u32) -> u32 {
    let bit = 8u * (plane & 3u) + k * width;
    return (weights[plane / 4u + bit / 32u] >> (bit & 31u)) & ((1u << width) - 1u);
}

//#include affine_numbers
