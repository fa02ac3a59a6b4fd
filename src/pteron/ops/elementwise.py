"""Elementwise operators: one line each.

The expression is WGSL over four values at a time. `x` (or `a` and `b`) are floats, or integers
where the operator is marked `exact`: it then keeps integer tensors integer. `zero` is four zeros.
"""

from __future__ import annotations

import math
from typing import Any

from pteron.graph.dispatch import Dispatch, quads, threads
from pteron.graph.live import LiveTensor
from pteron.graph.op import check, op
from pteron.ops.shapes import broadcast, broadcast_strides, merge

# WGSL has no infinity literal; no float32 lies beyond these.
F32_MAX = 3.4028234663852886e38
I32_MIN, I32_MAX = -(2**31), 2**31 - 1


def unary_dispatch(
    x: LiveTensor, out: LiveTensor, expression: str, *, exact: bool = False, scalars: tuple[float | int, ...] = ()
) -> Dispatch:
    """y = expression(x). Scalars are `s0`, `s1` in the expression, of the type it is computed in."""
    out.resize(x.shape)
    integer = exact and not x.dtype.is_float
    code = _function("v: x_t4", "y_t4", {"x": "v"}, expression, integer, len(scalars))
    s0, s1 = (*scalars, 0, 0)[:2]
    params = {"quads": quads(x.numel), "s0": _f32(s0), "s1": _f32(s1), "k0": _i32(s0), "k1": _i32(s1)}
    return Dispatch("unary", {"x": x, "y": out}, params, threads(quads(x.numel)), code=code)


def binary_dispatch(
    a: LiveTensor, b: LiveTensor, out: LiveTensor, expression: str, *, exact: bool = True, scalar: float | int = 0
) -> Dispatch:
    """y = expression(a, b) with broadcasting. Integers stay integers if both operands are and `exact`."""
    shape = broadcast(a.shape, b.shape)
    out.resize(shape)
    integer = exact and not (a.dtype.is_float or b.dtype.is_float)
    code = _function("u: a_t4, v: b_t4", "y_t4", {"a": "u", "b": "v"}, expression, integer, 1)
    sizes, (a_strides, b_strides) = merge(shape, broadcast_strides(a.shape, shape), broadcast_strides(b.shape, shape))
    params = {
        "quads": quads(out.numel),
        "rank": len(sizes),
        "a_same": int(a.numel == out.numel),
        "b_same": int(b.numel == out.numel),
        "s0": _f32(scalar),
        "k0": _i32(scalar),
        "sizes": sizes,
        "a_strides": a_strides,
        "b_strides": b_strides,
    }
    return Dispatch("binary", {"a": a, "b": b, "y": out}, params, threads(quads(out.numel)), code=code)


def _function(arguments: str, result: str, names: dict[str, str], expression: str, integer: bool, scalars: int) -> str:
    kind = "vec4<i32>" if integer else "vec4<f32>"
    lines = [f"let {name} = {kind}({argument});" for name, argument in names.items()]
    lines += [f"let s{i} = {kind}(p.{'k' if integer else 's'}{i});" for i in range(scalars)]
    lines += [f"let zero = {kind}();"] * ("zero" in expression)
    helpers = "".join(text for name, text in _HELPERS.items() if f"{name}(" in expression)
    return f"{helpers}fn apply({arguments}) -> {result} {{ {' '.join(lines)} return {result}({expression}); }}"


def _f32(value: float | int) -> float:
    return max(-F32_MAX, min(F32_MAX, float(value))) if not math.isnan(value) else value


def _i32(value: float | int) -> int:
    if isinstance(value, float) and not math.isfinite(value):
        return 0 if math.isnan(value) else (I32_MAX if value > 0 else I32_MIN)
    return max(I32_MIN, min(I32_MAX, int(value)))


_HELPERS = {
    # Abramowitz and Stegun 7.1.26: |error| < 1.5e-7.
    "erf4": """
fn erf4(x: vec4<f32>) -> vec4<f32> {
    let t = 1.0 / (1.0 + 0.3275911 * abs(x));
    let poly = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t;
    return sign(x) * (1.0 - poly * exp(-x * x));
}
""",
    # exp() inside tanh overflows on some drivers; beyond 15 the result is 1 in float32.
    "tanh4": "fn tanh4(x: vec4<f32>) -> vec4<f32> { return tanh(clamp(x, vec4<f32>(-15.0), vec4<f32>(15.0))); }\n",
    # WGSL's pow is undefined for a negative base; an integer exponent only decides the sign.
    "pow4": """
fn pow4(x: vec4<f32>, e: vec4<f32>) -> vec4<f32> {
    let magnitude = select(pow(abs(x), e), vec4<f32>(1.0), e == vec4<f32>(0.0));
    let odd = abs(e - 2.0 * floor(e * 0.5)) == vec4<f32>(1.0);
    let whole = floor(e) == e;
    let nan = bitcast<vec4<f32>>(vec4<u32>(p.quads | 0x7fc00000u));
    let negative = select(nan, select(magnitude, -magnitude, odd), whole);
    return select(magnitude, negative, x < vec4<f32>(0.0));
}
""",
    "ipow4": """
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
""",
    "ifloordiv4": """
fn ifloordiv4(a: vec4<i32>, b: vec4<i32>) -> vec4<i32> {
    let q = a / b;
    return select(q, q - 1, (a % b != vec4<i32>(0)) & ((a < vec4<i32>(0)) != (b < vec4<i32>(0))));
}
""",
}


def unary(name: str, expression: str, *, exact: bool = False) -> None:
    @op(name)
    def rule(x: LiveTensor, out: LiveTensor) -> Dispatch:
        return unary_dispatch(x, out, expression, exact=exact)


def binary(name: str, expression: str, *, exact: bool = True, integer: str | None = None) -> None:
    """`integer` is the expression for integer operands, where it is not the same."""

    @op(name)
    def rule(a: LiveTensor, b: LiveTensor, out: LiveTensor) -> Dispatch:
        whole = integer is not None and not (a.dtype.is_float or b.dtype.is_float)
        return binary_dispatch(a, b, out, integer if whole and integer else expression, exact=exact)


def comparison(name: str, operator: str) -> None:
    truth = "select(vec4<i32>(0), vec4<i32>(1), {})"

    @op(f"aten.{name}.Tensor")
    def tensors(a: LiveTensor, b: LiveTensor, out: LiveTensor) -> Dispatch:
        return binary_dispatch(a, b, out, truth.format(f"a {operator} b"))

    @op(f"aten.{name}.Scalar")
    def scalar(x: LiveTensor, other: Any, out: LiveTensor) -> Dispatch:
        # An integer tensor against 2.5 must be compared as floats.
        exact = float(other).is_integer() if math.isfinite(other) else False
        return unary_dispatch(x, out, truth.format(f"x {operator} s0"), exact=exact, scalars=(other,))


unary("aten.abs.default", "abs(x)", exact=True)
unary("aten.neg.default", "-x", exact=True)
unary("aten.relu.default", "max(x, zero)", exact=True)
unary("aten.exp.default", "exp(x)")
unary("aten.log.default", "log(x)")
unary("aten.log10.default", "log(x) * 0.4342944819032518")
unary("aten.sqrt.default", "sqrt(x)")
unary("aten.rsqrt.default", "inverseSqrt(x)")
unary("aten.reciprocal.default", "1.0 / x")
unary("aten.sin.default", "sin(x)")
unary("aten.cos.default", "cos(x)")
unary("aten.tanh.default", "tanh4(x)")
unary("aten.erf.default", "erf4(x)")
unary("aten.sigmoid.default", "1.0 / (1.0 + exp(-x))")
unary("aten.floor.default", "floor(x)")
unary("aten.ceil.default", "ceil(x)")
unary("aten.round.default", "round(x)")
unary("aten.hardswish.default", "x * clamp(x + 3.0, zero, zero + 6.0) / 6.0")
unary("aten.logical_not.default", "select(vec4<i32>(0), vec4<i32>(1), x == zero)", exact=True)

binary("aten.mul.Tensor", "a * b")
binary("aten.div.Tensor", "a / b", exact=False)
binary("aten.minimum.default", "min(a, b)")
binary("aten.maximum.default", "max(a, b)")
binary("aten.pow.Tensor_Tensor", "pow4(a, b)", integer="ipow4(a, b)")
binary("aten.logical_and.default", "select(vec4<i32>(0), vec4<i32>(1), (a != zero) & (b != zero))")
binary("aten.logical_or.default", "select(vec4<i32>(0), vec4<i32>(1), (a != zero) | (b != zero))")

comparison("eq", "==")
comparison("ne", "!=")
comparison("lt", "<")
comparison("le", "<=")
comparison("gt", ">")
comparison("ge", ">=")


@op("aten.add.Tensor")
def add(a: LiveTensor, b: LiveTensor, alpha: Any, out: LiveTensor) -> Dispatch:
    return binary_dispatch(a, b, out, "a + s0 * b", scalar=alpha)


@op("aten.sub.Tensor")
def sub(a: LiveTensor, b: LiveTensor, alpha: Any, out: LiveTensor) -> Dispatch:
    return binary_dispatch(a, b, out, "a - s0 * b", scalar=alpha)


@op("aten.div.Tensor_mode")
def div_mode(a: LiveTensor, b: LiveTensor, rounding_mode: str | None, out: LiveTensor) -> Dispatch:
    integer = not (a.dtype.is_float or b.dtype.is_float)
    match rounding_mode:
        case None:
            return binary_dispatch(a, b, out, "a / b", exact=False)
        case "floor":
            return binary_dispatch(a, b, out, "ifloordiv4(a, b)" if integer else "floor(a / b)")
        case "trunc":
            return binary_dispatch(a, b, out, "a / b" if integer else "trunc(a / b)")
    check(False, f"rounding_mode must be 'floor', 'trunc' or None, not {rounding_mode!r}")
    raise AssertionError


@op("aten.clamp.default")
def clamp(x: LiveTensor, low: Any, high: Any, out: LiveTensor) -> Dispatch:
    bounds = (-math.inf if low is None else low, math.inf if high is None else high)
    return unary_dispatch(x, out, "min(max(x, s0), s1)", exact=True, scalars=bounds)


@op("aten.hardtanh.default")
def hardtanh(x: LiveTensor, low: Any, high: Any, out: LiveTensor) -> Dispatch:
    return clamp(x, low, high, out)  # type: ignore[no-any-return]


@op("aten.pow.Tensor_Scalar")
def pow_scalar(x: LiveTensor, exponent: Any, out: LiveTensor) -> Dispatch:
    integer = not x.dtype.is_float and not out.dtype.is_float
    return unary_dispatch(x, out, "ipow4(x, s0)" if integer else "pow4(x, s0)", exact=integer, scalars=(exponent,))


@op("aten.gelu.default")
def gelu(x: LiveTensor, approximate: str, out: LiveTensor) -> Dispatch:
    if approximate == "tanh":
        return unary_dispatch(x, out, "0.5 * x * (1.0 + tanh4(0.7978845608028654 * (x + 0.044715 * x * x * x)))")
    return unary_dispatch(x, out, "0.5 * x * (1.0 + erf4(x * 0.7071067811865476))")


@op("aten.leaky_relu.default")
def leaky_relu(x: LiveTensor, negative_slope: float, out: LiveTensor) -> Dispatch:
    return unary_dispatch(x, out, "select(s0 * x, x, x >= zero)", scalars=(negative_slope,))


@op("aten.where.self")
def where(condition: LiveTensor, a: LiveTensor, b: LiveTensor, out: LiveTensor) -> Dispatch:
    shape = broadcast(condition.shape, a.shape, b.shape)
    out.resize(shape)
    walks = [broadcast_strides(x.shape, shape) for x in (condition, a, b)]
    sizes, (c_strides, a_strides, b_strides) = merge(shape, *walks)
    params = {
        "quads": quads(out.numel),
        "rank": len(sizes),
        "sizes": sizes,
        "c_strides": c_strides,
        "a_strides": a_strides,
        "b_strides": b_strides,
    }
    return Dispatch("where", {"c": condition, "a": a, "b": b, "y": out}, params, threads(quads(out.numel)))


@op("aten._to_copy.default", alias="x")
def to_copy(
    x: LiveTensor,
    dtype: Any,
    layout: Any,
    device: Any,
    pin_memory: Any,
    non_blocking: Any,
    memory_format: Any,
    out: LiveTensor,
) -> Dispatch | None:
    return cast(x, out)


@op("dim_order_ops._to_dim_order_copy.default", alias="x")
def to_dim_order_copy(
    x: LiveTensor,
    dtype: Any,
    layout: Any,
    device: Any,
    pin_memory: Any,
    non_blocking: Any,
    dim_order: Any,
    out: LiveTensor,
) -> Dispatch | None:
    return cast(x, out)


@op("pteron.cast", alias="x")
def pteron_cast(x: LiveTensor, out: LiveTensor) -> Dispatch | None:
    return cast(x, out)


def cast(x: LiveTensor, out: LiveTensor) -> Dispatch | None:
    """Convert between dtypes; the same dtype needs nothing, for the output is an alias."""
    out.resize(x.shape)
    if x.dtype == out.dtype:
        return None
    if out.dtype.label == "bool" and x.dtype.is_float:
        return unary_dispatch(x, out, "select(vec4<i32>(0), vec4<i32>(1), x != zero)")
    return unary_dispatch(x, out, "x", exact=not out.dtype.is_float)
