// 64-bit integers as two words: x is the low word, y the high word. WGSL has no 64-bit types. A shader gets
// the functions that it calls.

fn int64_of(v: i32) -> vec2<u32> { return vec2<u32>(bitcast<u32>(v), bitcast<u32>(v >> 31u)); }
fn low_word(v: vec2<u32>) -> i32 { return bitcast<i32>(v.x); }
fn is_negative64(v: vec2<u32>) -> bool { return bitcast<i32>(v.y) < 0; }

fn add64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let low = a.x + b.x;
    return vec2<u32>(low, a.y + b.y + u32(low < a.x));
}

fn sub64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    return vec2<u32>(a.x - b.x, a.y - b.y - u32(a.x < b.x));
}

fn neg64(a: vec2<u32>) -> vec2<u32> { return sub64(vec2<u32>(), a); }

// The product of two words, from products of their halves.
fn product_of_words(a: u32, b: u32) -> vec2<u32> {
    let low = (a & 0xffffu) * (b & 0xffffu);
    let first = (a >> 16u) * (b & 0xffffu) + (low >> 16u);
    let second = (a & 0xffffu) * (b >> 16u) + (first & 0xffffu);
    return vec2<u32>(a * b, (a >> 16u) * (b >> 16u) + (first >> 16u) + (second >> 16u));
}

fn mul64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let low = product_of_words(a.x, b.x);
    return vec2<u32>(low.x, low.y + a.x * b.y + a.y * b.x);
}

fn below_unsigned64(a: vec2<u32>, b: vec2<u32>) -> bool { return a.y < b.y || (a.y == b.y && a.x < b.x); }
fn lt64(a: vec2<u32>, b: vec2<u32>) -> bool {
    return below_unsigned64(a ^ vec2<u32>(0u, 0x80000000u), b ^ vec2<u32>(0u, 0x80000000u));
}

fn above64(b: vec2<u32>, a: vec2<u32>) -> bool { return lt64(a, b); }
fn below64(b: vec2<u32>, a: vec2<u32>) -> bool { return lt64(b, a); }
fn max64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return select(a, b, lt64(a, b)); }
fn min64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return select(a, b, lt64(b, a)); }
fn abs64(a: vec2<u32>) -> vec2<u32> { return select(a, neg64(a), is_negative64(a)); }

// The quotient of two numbers without sign: bit by bit, unless both fit in one word.
fn quotient_unsigned64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    if (a.y == 0u && b.y == 0u) { return vec2<u32>(a.x / b.x, 0u); }
    var quotient = vec2<u32>();
    var rest = vec2<u32>();
    for (var i = 63u; i < 64u; i--) {
        let carry = (rest.y >> 31u) == 1u;
        rest = vec2<u32>((rest.x << 1u) | ((a[i >> 5u] >> (i & 31u)) & 1u), (rest.y << 1u) | (rest.x >> 31u));
        if (carry || !below_unsigned64(rest, b)) {
            rest = sub64(rest, b);
            quotient[i >> 5u] |= 1u << (i & 31u);
        }
    }
    return quotient;
}

// Rounded towards zero.
fn div64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let quotient = quotient_unsigned64(abs64(a), abs64(b));
    return select(quotient, neg64(quotient), is_negative64(a) != is_negative64(b));
}

// The remainder with the sign of the dividend.
fn rem64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return sub64(a, mul64(div64(a, b), b)); }

fn floordiv64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let quotient = div64(a, b);
    let exact = all(mul64(quotient, b) == a);
    return select(sub64(quotient, vec2<u32>(1u, 0u)), quotient, exact || is_negative64(a) == is_negative64(b));
}

// The remainder as in Python: it has the sign of the divisor.
fn remainder64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return sub64(a, mul64(floordiv64(a, b), b)); }

fn pow64(x: vec2<u32>, e: vec2<u32>) -> vec2<u32> {
    var result = vec2<u32>(1u, 0u);
    var base = x;
    for (var i = 0u; i < 64u; i++) {
        if (((e[i >> 5u] >> (i & 31u)) & 1u) == 1u) { result = mul64(result, base); }
        base = mul64(base, base);
    }
    if (!is_negative64(e)) { return result; }
    // 1 / x**n is an integer only for 1 and -1.
    if (all(x == vec2<u32>(0xffffffffu))) { return select(vec2<u32>(1u, 0u), x, (e.x & 1u) == 1u); }
    return select(vec2<u32>(), x, all(x == vec2<u32>(1u, 0u)));
}

// A shift by more than 63 bits, or by a negative number, gives 0. A right shift of a negative number gives -1.
fn shl64(a: vec2<u32>, by: vec2<u32>) -> vec2<u32> {
    if (by.y != 0u || by.x > 63u) { return vec2<u32>(); }
    if (by.x > 31u) { return vec2<u32>(0u, a.x << (by.x - 32u)); }
    let carried = (a.x >> 1u) >> (31u - by.x);
    return vec2<u32>(a.x << by.x, (a.y << by.x) | carried);
}

fn shr64(a: vec2<u32>, by: vec2<u32>) -> vec2<u32> {
    let high = bitcast<i32>(a.y);
    if (by.y != 0u || by.x > 63u) { return vec2<u32>(bitcast<u32>(high >> 31u)); }
    if (by.x > 31u) { return int64_of(high >> (by.x - 32u)); }
    let carried = (a.y << 1u) << (31u - by.x);
    return vec2<u32>((a.x >> by.x) | carried, bitcast<u32>(high >> by.x));
}

// The nearest float32, and the even one of two that are equally near.
fn float_of_int64(v: vec2<u32>) -> f32 {
    let size = abs64(v);
    if (size.y == 0u && size.x < 0x1000000u) { return select(f32(size.x), -f32(size.x), is_negative64(v)); }
    var bits = 32u - countLeadingZeros(size.x);
    if (size.y != 0u) { bits = 64u - countLeadingZeros(size.y); }
    // The number without its first bit, from the top of two words: 23 bits are kept, and the rest is rounded.
    let top = shl64(shl64(size, vec2<u32>(64u - bits, 0u)), vec2<u32>(1u, 0u));
    let kept = top.y >> 9u;
    let rest = vec2<u32>(top.x, top.y & 0x1ffu);
    let half = vec2<u32>(0u, 0x100u);
    let up = below_unsigned64(half, rest) || (all(half == rest) && (kept & 1u) == 1u);
    let magnitude = ((bits + 126u) << 23u) + kept + u32(up);  // a carry goes to the exponent
    return bitcast<f32>(magnitude | (v.y & 0x80000000u));
}

// Rounded towards zero. NaN and numbers out of range give the smallest integer.
fn int64_of_float(x: f32) -> vec2<u32> {
    let bits = bitcast<u32>(x);
    let exponent = i32((bits >> 23u) & 255u) - 127;
    if (exponent < 0) { return vec2<u32>(); }
    if (exponent > 62) { return vec2<u32>(0u, 0x80000000u); }
    let mantissa = (bits & 0x7fffffu) | 0x800000u;
    let places = vec2<u32>(u32(max(exponent - 23, 0)), 0u);
    let size = shl64(vec2<u32>(mantissa >> u32(max(23 - exponent, 0)), 0u), places);
    return select(size, neg64(size), bits >= 0x80000000u);
}
