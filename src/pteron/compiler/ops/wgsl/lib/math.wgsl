// Functions that WGSL does not have, or has with little precision. A shader gets the functions that it calls.
// NaN is recognised by its bits, because a compiler may assume that x != x is never true.

fn is_nan4(x: vec4<f32>) -> vec4<bool> {
    return (bitcast<vec4<u32>>(x) & vec4<u32>(0x7fffffffu)) > vec4<u32>(0x7f800000u);
}

fn is_inf4(x: vec4<f32>) -> vec4<bool> {
    return (bitcast<vec4<u32>>(x) & vec4<u32>(0x7fffffffu)) == vec4<u32>(0x7f800000u);
}

// The larger and the smaller of two numbers; NaN if one of them is NaN. WGSL's max and min may return the
// other number.
fn max_nan4(a: vec4<f32>, b: vec4<f32>) -> vec4<f32> { return select(a, b, (b > a) | is_nan4(b)); }
fn min_nan4(a: vec4<f32>, b: vec4<f32>) -> vec4<f32> { return select(a, b, (b < a) | is_nan4(b)); }

// The magnitude of a with the sign of b, also where b is -0 or NaN.
fn copysign4(a: vec4<f32>, b: vec4<f32>) -> vec4<f32> {
    let sign_bit = vec4<u32>(0x80000000u);
    return bitcast<vec4<f32>>((bitcast<vec4<u32>>(a) & ~sign_bit) | (bitcast<vec4<u32>>(b) & sign_bit));
}

// x, but NaN where the condition holds. Its bits are made from those of x, because WGSL has no NaN constant.
fn nan_where4(x: vec4<f32>, condition: vec4<bool>) -> vec4<f32> {
    let bits = bitcast<vec4<u32>>(x);
    return bitcast<vec4<f32>>(select(bits, bits | vec4<u32>(0x7fc00000u), condition));
}

// x between two limits; NaN stays NaN.
fn clamp_nan4(x: vec4<f32>, low: vec4<f32>, high: vec4<f32>) -> vec4<f32> {
    return select(select(x, low, x < low), high, x > high);
}

// The logarithm of 1 + x for |x| < 0.5, by the series of 2 atanh(x / (2 + x)).
fn log1p_series4(x: vec4<f32>) -> vec4<f32> {
    let s = x / (2.0 + x);
    let z = s * s;
    return 2.0 * s * (1.0 + z * (1.0 / 3.0 + z * (0.2 + z * (1.0 / 7.0 + z * (1.0 / 9.0 + z * (1.0 / 11.0 + z / 13.0))))));
}

// x = mantissa * 2^exponent with a mantissa in 0.707 .. 1.414, for x > 0. A driver may take a denormal x for
// 0, so its bits are converted as an integer.
struct Parts4 { mantissa: vec4<f32>, exponent: vec4<f32> }

fn parts4(x: vec4<f32>) -> Parts4 {
    let given = bitcast<vec4<u32>>(x);
    let denormal = given < vec4<u32>(0x00800000u);
    let bits = select(given, bitcast<vec4<u32>>(vec4<f32>(given)), denormal);
    let raised = (bits + vec4<u32>(0x004afb0du)) >> vec4<u32>(23u);
    let mantissa = bitcast<vec4<f32>>(bits - ((raised - vec4<u32>(127u)) << vec4<u32>(23u)));
    return Parts4(mantissa, vec4<f32>(vec4<i32>(raised) - select(vec4<i32>(127), vec4<i32>(276), denormal)));
}

// WGSL's log guarantees only an absolute error, which is large near 1. So the exponent is split off. For 0,
// negative numbers, infinities and NaN, the driver's log is used.
fn log4(x: vec4<f32>) -> vec4<f32> {
    let parts = parts4(x);
    let positive = (bitcast<vec4<u32>>(x) - vec4<u32>(1u)) < vec4<u32>(0x7f7fffffu);
    return select(log(x), parts.exponent * 0.6931471805599453 + log1p_series4(parts.mantissa - 1.0), positive);
}

fn log1p4(x: vec4<f32>) -> vec4<f32> { return select(log4(1.0 + x), log1p_series4(x), abs(x) < vec4<f32>(0.3)); }

// 2^n e^r for |r| < 0.35. The factor is multiplied in two halves, so that neither of them overflows.
fn scaled_exp4(r: vec4<f32>, n: vec4<f32>) -> vec4<f32> {
    let series = ((((1.395171466e-3 * r + 8.369598665e-3) * r + 4.166618732e-2) * r + 1.666651289e-1) * r + 0.5) * r * r + r + 1.0;
    let exponent = vec4<i32>(n);
    let first = exponent >> vec4<u32>(1u);
    return series * power_of_two4(first) * power_of_two4(exponent - first);
}

fn power_of_two4(n: vec4<i32>) -> vec4<f32> { return bitcast<vec4<f32>>((n + vec4<i32>(127)) << vec4<u32>(23u)); }

// WGSL's exp and exp2 may be wrong by 2 |x| units in the last place. Here the whole part of the exponent of 2
// is split off.
fn exp4(x: vec4<f32>) -> vec4<f32> {
    let near = clamp_nan4(x, vec4<f32>(-160.0), vec4<f32>(160.0));
    let n = round(near * 1.4426950408889634);
    return scaled_exp4((near - n * 0.693359375) + n * 2.12194440e-4, n);
}

fn exp2_4(x: vec4<f32>) -> vec4<f32> {
    let near = clamp_nan4(x, vec4<f32>(-240.0), vec4<f32>(240.0));
    let n = round(near);
    return scaled_exp4((near - n) * 0.6931471805599453, n);
}

fn expm1_4(x: vec4<f32>) -> vec4<f32> {
    let series = x * (1.0 + x / 2.0 * (1.0 + x / 3.0 * (1.0 + x / 4.0 * (1.0 + x / 5.0 * (1.0 + x / 6.0 * (1.0 + x / 7.0))))));
    return select(exp4(x) - 1.0, series, abs(x) < vec4<f32>(0.35));
}

fn tanh4(x: vec4<f32>) -> vec4<f32> {
    let e = expm1_4(2.0 * x);
    return select(1.0 - 2.0 / (exp(2.0 * x) + 1.0), e / (e + 2.0), abs(x) < vec4<f32>(0.175));
}

fn sigmoid4(x: vec4<f32>) -> vec4<f32> { return 1.0 / (1.0 + exp(-x)); }

fn sinh4(x: vec4<f32>) -> vec4<f32> {
    let e = expm1_4(abs(x));
    // Beyond 44, e^-x is negligible. Half the exponent avoids an overflow before the largest results.
    let half = exp4(0.5 * abs(x));
    return copysign4(select(0.5 * (e + e / (e + 1.0)), 0.5 * half * half, abs(x) > vec4<f32>(44.0)), x);
}

fn cosh4(x: vec4<f32>) -> vec4<f32> {
    let half = exp4(0.5 * abs(x));
    return 0.5 * half * half + 0.5 * exp(-abs(x));
}

fn asinh4(x: vec4<f32>) -> vec4<f32> {
    let a = abs(x);
    let near = log1p4(a + a * a / (1.0 + sqrt(a * a + 1.0)));
    return copysign4(select(near, log4(a) + 0.6931471805599453, a > vec4<f32>(1.0e9)), x);
}

fn acosh4(x: vec4<f32>) -> vec4<f32> {
    let t = x - 1.0;
    let near = nan_where4(log1p4(t + sqrt(2.0 * t + t * t)), t < vec4<f32>(0.0));
    return select(near, log4(x) + 0.6931471805599453, x > vec4<f32>(1.0e9));
}

fn atanh4(x: vec4<f32>) -> vec4<f32> {
    let half = 0.5 * log1p4(2.0 * abs(x) / (1.0 - abs(x)));
    return select(copysign4(half, x), half, is_nan4(half));
}

// The upper 32 bits of a product.
fn upper_product(a: u32, b: u32) -> u32 {
    let low = (a & 0xffffu) * (b & 0xffffu);
    let first = (a >> 16u) * (b & 0xffffu) + (low >> 16u);
    let second = (a & 0xffffu) * (b >> 16u) + (first & 0xffffu);
    return (a >> 16u) * (b >> 16u) + (first >> 16u) + (second >> 16u);
}

// x = quarter * pi/2 + rest with |rest| <= pi/4, and quarter modulo 4. x / (pi/2) is a product of integers: the
// mantissa times 96 bits of 2/pi, from the bit whose product with the mantissa is the first below 4. So the
// rest is right for all x.
struct Angle { rest: f32, quarter: u32 }

fn angle(x: f32) -> Angle {
    let bits = bitcast<u32>(x) & 0x7fffffffu;
    if (bits < 0x3f490fdbu) { return Angle(x, 0u); }  // |x| < pi/4
    // The bits of 2/pi after the point, with 32 zeros before them.
    var two_over_pi = array<u32, 8>(0u, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u, 0xdb629599u, 0x3c439041u, 0xfe5163abu);
    let start = (bits >> 23u) - 120u;  // 32 + exponent - 2, where the mantissa is an integer
    let word = min(start >> 5u, 4u);
    let shift = start & 31u;
    let next = 31u - shift;
    let first = (two_over_pi[word] << shift) | ((two_over_pi[word + 1u] >> 1u) >> next);
    let second = (two_over_pi[word + 1u] << shift) | ((two_over_pi[word + 2u] >> 1u) >> next);
    let third = (two_over_pi[word + 2u] << shift) | ((two_over_pi[word + 3u] >> 1u) >> next);
    let mantissa = (bits & 0x7fffffu) | 0x800000u;
    let middle = mantissa * second + upper_product(mantissa, third);
    let carry = select(0u, 1u, middle < mantissa * second);
    let top = mantissa * first + upper_product(mantissa, second) + carry;
    // The upper two bits count quarters. The others are a fraction, which is rounded to the nearest quarter.
    let quarter = (top + 0x20000000u) >> 30u;
    let high = top - (quarter << 30u);
    let below = (high >> 31u) == 1u;
    let size_low = select(middle, ~middle + 1u, below);
    let size_high = select(high, ~high + select(0u, 1u, middle == 0u), below);
    let zeros = select(countLeadingZeros(size_high), 32u, size_high == 0u);
    let size = select((size_high << (zeros & 31u)) | ((size_low >> 1u) >> (31u - (zeros & 31u))), size_low, zeros == 32u);
    let fraction = f32(size) * bitcast<f32>((97u - zeros) << 23u);
    let negative = below != (x < 0.0);
    let rest = select(1.5707963267948966, -1.5707963267948966, negative) * fraction;
    return Angle(rest, select(quarter, 0u - quarter, x < 0.0) & 3u);
}

fn sine1(x: f32, turns: u32) -> f32 { return sine_at(angle(x), turns); }

// The sine of an angle, after a number of quarter turns.
fn sine_at(at: Angle, turns: u32) -> f32 {
    let quarter = at.quarter + turns;
    let r = at.rest;
    let z = r * r;
    let sine = r * (((-1.951086892e-4 * z + 8.332131709e-3) * z - 1.666665423e-1) * z + 1.0);  // keeps -0
    let cosine = ((2.443123680e-5 * z - 1.388730631e-3) * z + 4.166664566e-2) * z * z - 0.5 * z + 1.0;
    let value = select(sine, cosine, (quarter & 1u) == 1u);
    return select(value, -value, (quarter & 2u) == 2u);
}

fn not_finite4(x: vec4<f32>) -> vec4<bool> {
    return (bitcast<vec4<u32>>(x) & vec4<u32>(0x7f800000u)) == vec4<u32>(0x7f800000u);
}

// WGSL's sin and cos guarantee three digits, and nothing beyond pi.
fn sin4(x: vec4<f32>) -> vec4<f32> {
    return nan_where4(vec4<f32>(sine1(x.x, 0u), sine1(x.y, 0u), sine1(x.z, 0u), sine1(x.w, 0u)), not_finite4(x));
}

fn cos4(x: vec4<f32>) -> vec4<f32> {
    return nan_where4(vec4<f32>(sine1(x.x, 1u), sine1(x.y, 1u), sine1(x.z, 1u), sine1(x.w, 1u)), not_finite4(x));
}

// Arc functions by polynomials on a reduced range, with the precision of float32.
fn atan4(x: vec4<f32>) -> vec4<f32> {
    let a = abs(x);
    let far = a > vec4<f32>(2.414213562373095);
    let middle = !far & (a > vec4<f32>(0.4142135623730950));
    let r = select(select(a, (a - 1.0) / (a + 1.0), middle), -1.0 / a, far);
    let base = select(select(vec4<f32>(0.0), vec4<f32>(0.7853981633974483), middle), vec4<f32>(1.5707963267948966), far);
    let z = r * r;
    let p4 = ((8.05374449538e-2 * z - 1.38776856032e-1) * z + 1.99777106478e-1) * z - 3.33329491539e-1;
    return select(copysign4(base + (p4 * z * r + r), x), x, is_nan4(x));
}

fn asin_series4(x: vec4<f32>) -> vec4<f32> {
    let z = x * x;
    let p5 = (((4.2163199048e-2 * z + 2.4181311049e-2) * z + 4.5470025998e-2) * z + 7.4953002686e-2) * z + 1.6666752422e-1;
    return p5 * z * x + x;
}

fn asin4(x: vec4<f32>) -> vec4<f32> {
    let a = abs(x);
    let far = 1.5707963267948966 - 2.0 * asin_series4(sqrt(0.5 * (1.0 - a)));
    return select(sign(x) * far, asin_series4(x), a <= vec4<f32>(0.5));
}

fn acos4(x: vec4<f32>) -> vec4<f32> {
    let far = 2.0 * asin_series4(sqrt(0.5 * (1.0 - abs(x))));
    let outer = select(far, 3.141592653589793 - far, x < vec4<f32>(0.0));
    return select(outer, 1.5707963267948966 - asin_series4(x), abs(x) <= vec4<f32>(0.5));
}

fn atan2_4(y: vec4<f32>, x: vec4<f32>) -> vec4<f32> {
    let zero = vec4<f32>(0.0);
    let left = (bitcast<vec4<u32>>(x) >> vec4<u32>(31u)) == vec4<u32>(1u);  // true for -0 too
    let below = (bitcast<vec4<u32>>(y) >> vec4<u32>(31u)) == vec4<u32>(1u);
    let both = is_inf4(x) & is_inf4(y);
    let steep = select(atan4(abs(y) / abs(x)), vec4<f32>(0.7853981633974483), both);
    let angle = select(steep, zero, (y == zero) & (x == zero));
    let rotated = select(angle, 3.141592653589793 - angle, left);
    return select(rotated, -rotated, below);
}

// sqrt(a^2 + b^2) without an overflow on the way. One infinity is enough, even beside NaN.
fn hypot4(a: vec4<f32>, b: vec4<f32>) -> vec4<f32> {
    let large = max_nan4(abs(a), abs(b));
    let small = min_nan4(abs(a), abs(b));
    let ratio = select(small / large, small, (large == vec4<f32>(0.0)) | is_nan4(large));
    let infinite = select(b, a, is_inf4(a));
    return select(large * sqrt(1.0 + ratio * ratio), abs(infinite), is_inf4(infinite));
}

// Near zero, a series gives relative precision. Elsewhere, Abramowitz and Stegun 7.1.26 with |error| <
// 1.5e-7.
fn erf4(x: vec4<f32>) -> vec4<f32> {
    let z = x * x;
    let near = x * ((((((7.853861353153693e-5 * z - 8.010193625184903e-4) * z + 5.188327685732524e-3) * z
        - 2.685381193529856e-2) * z + 1.128358514861418e-1) * z - 3.761262582423300e-1) * z + 1.128379165726710);
    let t = 1.0 / (1.0 + 0.3275911 * abs(x));
    let poly = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t;
    return select(sign(x) * (1.0 - poly * exp(-z)), near, abs(x) < vec4<f32>(1.0));
}

// erfc of a positive x is e^(-x^2) times a factor that changes slowly. x is split, so that its square is exact.
fn erfc4(x: vec4<f32>) -> vec4<f32> {
    let a = min(abs(x), vec4<f32>(12.0));
    let head = bitcast<vec4<f32>>(bitcast<vec4<u32>>(a) & vec4<u32>(0xfffff000u));
    let t = (a - 2.0) / (a + 2.0);
    let factor = ((((((((-4.0058312097e-4 * t - 1.2299350592e-3) * t + 1.3135287114e-3) * t + 8.6316887557e-3) * t
        - 8.0598772479e-3) * t - 5.4204300867e-2) * t + 1.6405534705e-1) * t - 1.6603142486e-1) * t
        - 9.2763980866e-2) * t + 1.2769783935;
    let tail = exp4(-head * head) * exp4(-(a - head) * (a + head)) * factor / (1.0 + 2.0 * a);
    return select(select(tail, 2.0 - tail, x < vec4<f32>(0.0)), x, is_nan4(x));
}

// The inverse of erf is x times a function of w = -log(1 - x^2), which is smooth in w, and far from 0 in its root. Both
// polynomials are fitted; their relative error is below 1e-7.
fn erfinv4(x: vec4<f32>) -> vec4<f32> {
    let one = vec4<f32>(1.0);
    let w = -log4((1.0 - abs(x)) * (1.0 + abs(x)));
    let a = w - 2.5;
    let near = ((((((((-8.94141383e-9 * a + 2.32647999e-8) * a + 4.68266961e-7) * a - 3.46309298e-6) * a
        - 4.97306974e-6) * a + 2.18345886e-4) * a - 1.25272525e-3) * a - 4.17738827e-3) * a + 2.4664028e-1) * a
        + 1.50140941;
    let b = sqrt(max(w, one)) - 3.16131566;
    let far = (((((((-1.5902915e-4 * b - 1.25678285e-4) * b + 1.2660725e-3) * b - 2.39604199e-3) * b
        + 3.32767726e-3) * b - 4.74861404e-3) * b + 6.50372216e-3) * b + 1.00420821) * b + 2.99477983;
    let inside = x * select(far, near, w < vec4<f32>(5.0));
    return nan_where4(select(inside, copysign4(w, x), abs(x) == one), (abs(x) > one) | is_nan4(x));
}

// |x|^e. The logarithm is a whole exponent and the logarithm of a mantissa. The product of e and the whole
// exponent is made of two exact parts, because a result near the limits would show its rounding.
fn pow_magnitude4(x: vec4<f32>, e: vec4<f32>) -> vec4<f32> {
    let near = clamp_nan4(e, vec4<f32>(-1.0e11), vec4<f32>(1.0e11));  // a power beyond is 0, 1 or infinite
    let parts = parts4(x);
    let head = bitcast<vec4<f32>>(bitcast<vec4<u32>>(near) & vec4<u32>(0xfffff000u));
    let whole = head * parts.exponent;
    let rest = (near - head) * parts.exponent + near * (1.4426950408889634 * log1p_series4(parts.mantissa - 1.0));
    let bounded = clamp_nan4(whole + rest, vec4<f32>(-240.0), vec4<f32>(240.0));
    let n = round(bounded);
    let beyond = abs(bounded) >= vec4<f32>(240.0);
    return scaled_exp4(select((whole - n) + rest, bounded - n, beyond) * 0.6931471805599453, n);
}

// WGSL's pow is undefined for a negative base and has little precision. So small integer exponents use
// multiplication.
fn pow4(x: vec4<f32>, e: vec4<f32>) -> vec4<f32> {
    let zero = vec4<f32>(0.0);
    let whole = (floor(e) == e) & (abs(e) <= vec4<f32>(64.0));
    var product = vec4<f32>(1.0);
    var base = x;
    var left = vec4<u32>(select(zero, abs(e), whole));
    for (var i = 0; i < 7; i++) {
        product = select(product, product * base, (left & vec4<u32>(1u)) == vec4<u32>(1u));
        base *= base;
        left >>= vec4<u32>(1u);
    }
    let multiplied = select(product, 1.0 / product, e < zero);
    let root = select(sqrt(x), 1.0 / sqrt(x), e < zero);
    let limit = select(zero, 1.0 / zero_of4(x), (abs(x) > vec4<f32>(1.0)) == (e > zero));  // for x = 0 or infinite
    let extreme = select(limit, vec4<f32>(1.0), abs(x) == vec4<f32>(1.0));
    let finite = select(pow_magnitude4(abs(x), e), root, (abs(e) == vec4<f32>(0.5)) & (x > zero));
    let magnitude = select(finite, extreme, (x == zero) | is_inf4(x) | is_inf4(e));
    let odd = abs(e - 2.0 * floor(e * 0.5)) == vec4<f32>(1.0);
    let negative = (x < zero) & !is_inf4(x) & !is_inf4(e) & !(floor(e) == e);
    let signed_power = nan_where4(copysign4(magnitude, select(abs(x), x, odd)), negative | is_nan4(x) | is_nan4(e));
    return select(select(signed_power, multiplied, whole), vec4<f32>(1.0), x == vec4<f32>(1.0));
}

// Zeros that no compiler knows to be 0, so that 1 / 0 is no error.
fn zero_of4(x: vec4<f32>) -> vec4<f32> { return bitcast<vec4<f32>>(bitcast<vec4<u32>>(x) & vec4<u32>(0u)); }

fn ipow4(x: vec4<i32>, e: vec4<i32>) -> vec4<i32> {
    var result = vec4<i32>(1);
    var base = x;
    var left = e;
    for (var i = 0; i < 32; i++) {
        result = select(result, result * base, (left & vec4<i32>(1)) == vec4<i32>(1));
        base *= base;
        left >>= vec4<u32>(1u);
    }
    let unit = select(vec4<i32>(0), select(vec4<i32>(1), x, (e & vec4<i32>(1)) == vec4<i32>(1)), abs(x) == vec4<i32>(1));
    return select(result, unit, e < vec4<i32>(0));
}

fn ifloordiv4(a: vec4<i32>, b: vec4<i32>) -> vec4<i32> {
    let q = a / b;
    return select(q, q - 1, (a % b != vec4<i32>(0)) & ((a < vec4<i32>(0)) != (b < vec4<i32>(0))));
}

// The remainder of a division that is rounded towards 0. WGSL's % is wrong where the quotient is large. Here
// the mantissas are divided as integers, eight bits of the quotient at a time.
fn fmod1(a: f32, b: f32) -> f32 {
    let a_bits = bitcast<u32>(a) & 0x7fffffffu;
    let b_bits = bitcast<u32>(b) & 0x7fffffffu;
    if (a_bits >= 0x7f800000u || b_bits == 0u || b_bits > 0x7f800000u) {
        return bitcast<f32>(a_bits | b_bits | 0x7fc00000u);  // NaN
    }
    if (a_bits < b_bits) { return a; }
    let lowest = max(b_bits >> 23u, 1u);
    var steps = max(a_bits >> 23u, 1u) - lowest;
    let divisor = (b_bits & 0x7fffffu) | select(0u, 0x800000u, b_bits >= 0x800000u);
    var rest = ((a_bits & 0x7fffffu) | select(0u, 0x800000u, a_bits >= 0x800000u)) % divisor;
    while (steps > 0u && rest > 0u) {
        let bits = min(steps, 8u);
        rest = (rest << bits) % divisor;
        steps -= bits;
    }
    // The rest has the exponent of b. A smaller rest has a smaller exponent, or it is denormal.
    let shift = min(countLeadingZeros(rest) - 8u, lowest - 1u);
    let mantissa = rest << shift;
    let exponent = select(0u, lowest - shift, mantissa >= 0x800000u);
    return bitcast<f32>((bitcast<u32>(a) & 0x80000000u) | (exponent << 23u) | (mantissa & 0x7fffffu));
}

fn fmod4(a: vec4<f32>, b: vec4<f32>) -> vec4<f32> {
    return vec4<f32>(fmod1(a.x, b.x), fmod1(a.y, b.y), fmod1(a.z, b.z), fmod1(a.w, b.w));
}

// The remainder as in Python: it has the sign of the divisor.
fn remainder4(a: vec4<f32>, b: vec4<f32>) -> vec4<f32> {
    let r = fmod4(a, b);
    return select(r, r + b, !(r == vec4<f32>(0.0)) & ((r < vec4<f32>(0.0)) != (b < vec4<f32>(0.0))));
}

// The quotient that fits this remainder. It is whole up to the rounding of the division.
fn floordiv4(a: vec4<f32>, b: vec4<f32>) -> vec4<f32> {
    let zero = vec4<f32>(0.0);
    let r = fmod4(a, b);
    let down = !(r == zero) & ((r < zero) != (b < zero));
    let quotient = (a - r) / b - select(zero, vec4<f32>(1.0), down);
    let whole = select(round(quotient), copysign4(zero, a / b), quotient == zero);
    return select(whole, a / b, b == zero);
}

fn iremainder4(a: vec4<i32>, b: vec4<i32>) -> vec4<i32> {
    let r = a % b;
    return select(r, r + b, (r != vec4<i32>(0)) & ((r < vec4<i32>(0)) != (b < vec4<i32>(0))));
}

// A shift by more than 31 bits, or by a negative number, gives 0. A right shift of a negative number gives -1.
fn ishl4(x: vec4<i32>, by: vec4<i32>) -> vec4<i32> {
    let outside = (by < vec4<i32>(0)) | (by > vec4<i32>(31));
    return select(x << bitcast<vec4<u32>>(by & vec4<i32>(31)), vec4<i32>(0), outside);
}

fn ishr4(x: vec4<i32>, by: vec4<i32>) -> vec4<i32> {
    let outside = (by < vec4<i32>(0)) | (by > vec4<i32>(31));
    return x >> bitcast<vec4<u32>>(select(by, vec4<i32>(31), outside));
}

fn softplus4(x: vec4<f32>) -> vec4<f32> { return max(x, vec4<f32>(0.0)) + log1p4(exp(-abs(x))); }

fn is_nan(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }
fn nan_where(x: f32, condition: bool) -> f32 { return bitcast<f32>(bitcast<u32>(x) | select(0u, 0x7fc00000u, condition)); }
fn is_inf(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) == 0x7f800000u; }

// Whether b comes before a in a search for the largest (the smallest) element. NaN comes before all numbers.
fn above(b: f32, a: f32) -> bool { return b > a || (is_nan(b) && !is_nan(a)); }
fn below(b: f32, a: f32) -> bool { return b < a || (is_nan(b) && !is_nan(a)); }
fn iabove(b: i32, a: i32) -> bool { return b > a; }
fn ibelow(b: i32, a: i32) -> bool { return b < a; }

// a / b of complex numbers. Both are divided by the larger part of b, whose square might overflow.
fn complex_quotient(a: vec2<f32>, b: vec2<f32>) -> vec2<f32> {
    let largest = max(abs(b.x), abs(b.y));
    let c = a / largest;
    let d = b / largest;
    return vec2<f32>(c.x * d.x + c.y * d.y, c.y * d.x - c.x * d.y) / (d.x * d.x + d.y * d.y);
}

fn log_scalar(x: f32) -> f32 { return log4(vec4<f32>(x)).x; }

// Float32 bits to bfloat16, two per word. They are rounded to the nearest value, and ties to even. NaN stays
// NaN.
fn wide_pairs(u: vec4<u32>) -> vec2<u64> { return vec2<u64>(u.xz) | (vec2<u64>(u.yw) << vec2<u32>(32u)); }

fn bfloat16_pairs(bits: vec4<u32>) -> vec2<u32> {
    let rounded = (bits + vec4<u32>(0x7fffu) + ((bits >> vec4<u32>(16u)) & vec4<u32>(1u))) >> vec4<u32>(16u);
    let is_number = (bits & vec4<u32>(0x7fffffffu)) <= vec4<u32>(0x7f800000u);
    let half = select(vec4<u32>(0x7fc0u), rounded, is_number);
    return half.xz | (half.yw << vec2<u32>(16u));
}

// The values that are read back after four values are stored as a narrower type. A driver may remove the
// rounding of unpack2x16float of pack2x16float, but not this rounding.
fn as_bool(v: vec4<i32>) -> vec4<i32> { return select(vec4<i32>(0), vec4<i32>(1), v != vec4<i32>(0)); }
fn as_int8(v: vec4<i32>) -> vec4<i32> { return (v << vec4<u32>(24u)) >> vec4<u32>(24u); }
fn as_uint8(v: vec4<i32>) -> vec4<i32> { return v & vec4<i32>(255); }
// `quantizeToF16` may take a denormal float16 for 0. A stored one stays: it is a multiple of 2^-24.
fn as_float16(v: vec4<f32>) -> vec4<f32> {
    let small = round(v * 16777216.0) * 5.9604644775390625e-8;
    return select(quantizeToF16(v), small, abs(v) < vec4<f32>(6.103515625e-5));
}
fn as_bfloat16(v: vec4<f32>) -> vec4<f32> {
    let pairs = bfloat16_pairs(bitcast<vec4<u32>>(v)).xxyy;
    return bitcast<vec4<f32>>((pairs << vec4<u32>(16u, 0u, 16u, 0u)) & vec4<u32>(0xffff0000u));
}
