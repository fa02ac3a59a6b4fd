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

// WGSL's log guarantees only an absolute error, which is large near 1. So the exponent is split off. For 0,
// negative numbers, infinities and NaN, the driver's log is used.
fn log4(x: vec4<f32>) -> vec4<f32> {
    let bits = bitcast<vec4<u32>>(x);
    let raised = (bits + vec4<u32>(0x004afb0du)) >> vec4<u32>(23u);  // the mantissa is then in 0.707 .. 1.414
    let mantissa = bitcast<vec4<f32>>(bits - ((raised - vec4<u32>(127u)) << vec4<u32>(23u)));
    let exponent = vec4<f32>(vec4<i32>(raised) - vec4<i32>(127));
    let normal = (x >= vec4<f32>(1.1754944e-38)) & (bits < vec4<u32>(0x7f800000u));
    return select(log(x), exponent * 0.6931471805599453 + log1p_series4(mantissa - 1.0), normal);
}

fn log1p4(x: vec4<f32>) -> vec4<f32> { return select(log4(1.0 + x), log1p_series4(x), abs(x) < vec4<f32>(0.3)); }

fn expm1_4(x: vec4<f32>) -> vec4<f32> {
    let series = x * (1.0 + x / 2.0 * (1.0 + x / 3.0 * (1.0 + x / 4.0 * (1.0 + x / 5.0 * (1.0 + x / 6.0 * (1.0 + x / 7.0))))));
    return select(exp(x) - 1.0, series, abs(x) < vec4<f32>(0.35));
}

fn tanh4(x: vec4<f32>) -> vec4<f32> {
    let e = expm1_4(2.0 * x);
    return select(1.0 - 2.0 / (exp(2.0 * x) + 1.0), e / (e + 2.0), abs(x) < vec4<f32>(0.175));
}

fn sigmoid4(x: vec4<f32>) -> vec4<f32> { return 1.0 / (1.0 + exp(-x)); }

fn sinh4(x: vec4<f32>) -> vec4<f32> {
    let e = expm1_4(abs(x));
    // Beyond 44, e^-x is negligible. Half the exponent avoids an overflow before the largest results.
    let half = exp(0.5 * abs(x));
    return sign(x) * select(0.5 * (e + e / (e + 1.0)), 0.5 * half * half, abs(x) > vec4<f32>(44.0));
}

fn cosh4(x: vec4<f32>) -> vec4<f32> {
    let half = exp(0.5 * abs(x));
    return 0.5 * half * half + 0.5 * exp(-abs(x));
}

fn asinh4(x: vec4<f32>) -> vec4<f32> {
    let a = abs(x);
    let near = log1p4(a + a * a / (1.0 + sqrt(a * a + 1.0)));
    return sign(x) * select(near, log4(a) + 0.6931471805599453, a > vec4<f32>(1.0e9));
}

fn acosh4(x: vec4<f32>) -> vec4<f32> {
    let t = x - 1.0;
    return select(log1p4(t + sqrt(2.0 * t + t * t)), log4(x) + 0.6931471805599453, x > vec4<f32>(1.0e9));
}

fn atanh4(x: vec4<f32>) -> vec4<f32> { return 0.5 * sign(x) * log1p4(2.0 * abs(x) / (1.0 - abs(x))); }

// Arc functions by polynomials on a reduced range, with the precision of float32.
fn atan4(x: vec4<f32>) -> vec4<f32> {
    let a = abs(x);
    let far = a > vec4<f32>(2.414213562373095);
    let middle = !far & (a > vec4<f32>(0.4142135623730950));
    let r = select(select(a, (a - 1.0) / (a + 1.0), middle), -1.0 / a, far);
    let base = select(select(vec4<f32>(0.0), vec4<f32>(0.7853981633974483), middle), vec4<f32>(1.5707963267948966), far);
    let z = r * r;
    let p4 = ((8.05374449538e-2 * z - 1.38776856032e-1) * z + 1.99777106478e-1) * z - 3.33329491539e-1;
    return select(sign(x) * (base + (p4 * z * r + r)), x, is_nan4(x));
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

// WGSL's pow is undefined for a negative base and has little precision. So integer exponents use
// multiplication.
fn pow4(x: vec4<f32>, e: vec4<f32>) -> vec4<f32> {
    let whole = (floor(e) == e) & (abs(e) <= vec4<f32>(64.0));
    var product = vec4<f32>(1.0);
    var base = x;
    var left = vec4<u32>(select(vec4<f32>(0.0), abs(e), whole));
    for (var i = 0; i < 7; i++) {
        product = select(product, product * base, (left & vec4<u32>(1u)) == vec4<u32>(1u));
        base *= base;
        left >>= vec4<u32>(1u);
    }
    let multiplied = select(product, 1.0 / product, e < vec4<f32>(0.0));
    let root = select(sqrt(x), 1.0 / sqrt(x), e < vec4<f32>(0.0));
    let magnitude = select(pow(abs(x), e), root, abs(e) == vec4<f32>(0.5));
    let odd = abs(e - 2.0 * floor(e * 0.5)) == vec4<f32>(1.0);
    let nan = bitcast<vec4<f32>>(vec4<u32>(p.quads | 0x7fc00000u));
    let negative = select(nan, select(magnitude, -magnitude, odd), floor(e) == e);
    return select(select(magnitude, negative, x < vec4<f32>(0.0)), multiplied, whole);
}

fn ipow4(x: vec4<i32>, e: vec4<i32>) -> vec4<i32> {
    var result = vec4<i32>(1);
    var base = x;
    var left = e;
    for (var i = 0; i < 32; i++) {
        result = select(result, result * base, (left & vec4<i32>(1)) == vec4<i32>(1));
        base *= base;
        left >>= vec4<u32>(1u);
    }
    return select(result, vec4<i32>(0), e < vec4<i32>(0));
}

fn ifloordiv4(a: vec4<i32>, b: vec4<i32>) -> vec4<i32> {
    let q = a / b;
    return select(q, q - 1, (a % b != vec4<i32>(0)) & ((a < vec4<i32>(0)) != (b < vec4<i32>(0))));
}

// The remainder as in Python: it has the sign of the divisor.
fn remainder4(a: vec4<f32>, b: vec4<f32>) -> vec4<f32> {
    let r = a % b;
    return select(r, r + b, (r != vec4<f32>(0.0)) & ((r < vec4<f32>(0.0)) != (b < vec4<f32>(0.0))));
}

fn iremainder4(a: vec4<i32>, b: vec4<i32>) -> vec4<i32> {
    let r = a % b;
    return select(r, r + b, (r != vec4<i32>(0)) & ((r < vec4<i32>(0)) != (b < vec4<i32>(0))));
}

fn softplus4(x: vec4<f32>) -> vec4<f32> { return max(x, vec4<f32>(0.0)) + log1p4(exp(-abs(x))); }

fn is_nan(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }
fn is_inf(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) == 0x7f800000u; }

// Whether b comes before a in a search for the largest (the smallest) element. NaN comes before all numbers.
fn above(b: f32, a: f32) -> bool { return b > a || (is_nan(b) && !is_nan(a)); }
fn below(b: f32, a: f32) -> bool { return b < a || (is_nan(b) && !is_nan(a)); }
fn iabove(b: i32, a: i32) -> bool { return b > a; }
fn ibelow(b: i32, a: i32) -> bool { return b < a; }

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
fn as_float16(v: vec4<f32>) -> vec4<f32> { return quantizeToF16(v); }
fn as_bfloat16(v: vec4<f32>) -> vec4<f32> {
    let pairs = bfloat16_pairs(bitcast<vec4<u32>>(v)).xxyy;
    return bitcast<vec4<f32>>((pairs << vec4<u32>(16u, 0u, 16u, 0u)) & vec4<u32>(0xffff0000u));
}
