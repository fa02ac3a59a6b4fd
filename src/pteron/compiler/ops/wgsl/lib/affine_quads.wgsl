// Four codes of a column, steps 4k .. 4k+3 in depth, as numbers. A row of codes is either BYTES, or has
// planes with the low bits first: NIBBLES, then PAIRS, then SINGLES. Each plane is whole words.
fn codes_quad(column: u32, k: u32) -> vec4<f32> { return numbers(codes_at(column, k)); }

fn codes_at(column: u32, k: u32) -> vec4<u32> {
    var at = column * (p.row_bytes / 4u);
    var q = vec4<u32>(0u);
//#if BYTES
    q = spread(weights[at + k], 8u);
//#end
//#if NIBBLES
    q = spread(weights[at + k / 2u] >> (16u * (k & 1u)), 4u);
    at += (p.depth + 7u) / 8u;
//#end
//#if PAIRS
    q |= spread(weights[at + k / 4u] >> (8u * (k & 3u)), 2u) << vec4<u32>(BELOW_PAIRS);
    at += (p.depth + 15u) / 16u;
//#end
//#if SINGLES
    q |= spread(weights[at + k / 8u] >> (4u * (k & 7u)), 1u) << vec4<u32>(BELOW_SINGLES);
//#end
    return q;
}

//#include affine_spread
//#include affine_numbers
