"""Elementwise operators: one line each, or a few where the function depends on arguments or dtypes."""

from __future__ import annotations

import math
from inspect import Parameter, Signature
from typing import Any

from pteron.compiler.ir.rule import DType, LiveTensor, Scalar, Unused, check
from pteron.compiler.ops.elementwise import Elementwise, all_integer, as_element, elementwise

AS_BOOL = "select(vec4<i32>(0), vec4<i32>(1), {})"

# -- operators in one line ----------------------------------------------------------------------------


def unary(name: str, expression: str, *, exact: bool = False, integer: str | None = None) -> None:
    """`exact`: integers are computed as integers. `integer`: the expression for integers, if it differs."""

    @elementwise(f"aten.{name}.default")
    def describe(x: LiveTensor, out: LiveTensor) -> Elementwise:
        if integer is not None and all_integer(x):
            return Elementwise(integer, integer=True)
        return Elementwise(expression, integer=exact and all_integer(x))


def binary(name: str, expression: str, *, exact: bool = True, integer: str | None = None) -> None:
    @elementwise(f"aten.{name}")
    def describe(a: LiveTensor, b: LiveTensor, out: LiveTensor) -> Elementwise:
        whole = exact and all_integer(a, b)
        return Elementwise(integer if whole and integer else expression, integer=whole)


def with_scalar(name: str, expression: str, *, exact: bool = True, integer: str | None = None) -> None:
    """A binary operator whose right operand is the scalar `s0`."""

    @elementwise(f"aten.{name}")
    def describe(x: LiveTensor, other: Scalar, out: LiveTensor) -> Elementwise:
        whole = exact and all_integer(x, out)
        number = as_element(other, out.dtype) if whole else other
        return Elementwise(integer if whole and integer else expression, (number,), whole)


def parametric(name: str, attributes: str, expression: str) -> None:
    """A float operator with scalar attributes, which are `s0`, `s1` and so on in the expression."""

    def describe(x: LiveTensor, *rest: Any) -> Elementwise:
        return Elementwise(expression, rest[:-1])

    takes = {"x": LiveTensor, **dict.fromkeys(attributes.split(), Scalar), "out": LiveTensor}
    describe.__signature__ = Signature(  # type: ignore[attr-defined]
        [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, annotation=kind) for name, kind in takes.items()]
    )
    elementwise(f"aten.{name}.default")(describe)


def comparison(name: str, expression: str) -> None:
    """`expression` compares {a} with {b}."""
    binary(f"{name}.Tensor", AS_BOOL.format(expression.format(a="a", b="b")))

    @elementwise(f"aten.{name}.Scalar")
    def with_number(x: LiveTensor, other: Scalar, out: LiveTensor) -> Elementwise:
        # An integer tensor against a float is compared as floats, so 1e30 is larger than all.
        whole = isinstance(other, int) and all_integer(x)
        number = as_element(other, x.dtype) if whole else other
        return Elementwise(AS_BOOL.format(expression.format(a="x", b="s0")), (number,), whole)


def bitwise(name: str, operator: str) -> None:
    """A boolean is stored as 0 or 1, so the same expression works for booleans."""
    binary(f"bitwise_{name}.Tensor", f"a {operator} b")

    @elementwise(f"aten.bitwise_{name}.Scalar")
    def with_number(x: LiveTensor, other: Scalar, out: LiveTensor) -> Elementwise:
        return Elementwise(f"x {operator} s0", (int(other),), all_integer(x))


# -- the operators ------------------------------------------------------------------------------------

unary("abs", "abs(x)", exact=True)
unary("neg", "-x", exact=True)
unary("sign", "select(zero, zero + 1, x > zero) - select(zero, zero + 1, x < zero)", exact=True)
unary("square", "x * x", exact=True)
unary("relu", "select(x, zero, x < zero)", exact=True)
unary("relu6", "select(select(x, zero, x < zero), zero + 6, x > zero + 6)", exact=True)
unary("floor", "floor(x)", integer="x")
unary("ceil", "ceil(x)", integer="x")
unary("round", "round(x)", integer="x")
unary("trunc", "trunc(x)", integer="x")
unary("frac", "x - trunc(x)")
unary("reciprocal", "1.0 / x")
unary("sqrt", "sqrt(x)")
unary("rsqrt", "inverseSqrt(x)")
unary("exp", "exp4(x)")
unary("exp2", "exp2_4(x)")
unary("expm1", "expm1_4(x)")
unary("log", "log4(x)")
unary("log2", "log4(x) * 1.4426950408889634")
unary("log10", "log4(x) * 0.4342944819032518")
unary("log1p", "log1p4(x)")
unary("sin", "sin4(x)")
unary("cos", "cos4(x)")
unary("tan", "sin4(x) / cos4(x)")
unary("asin", "asin4(x)")
unary("acos", "acos4(x)")
unary("atan", "atan4(x)")
unary("sinh", "sinh4(x)")
unary("cosh", "cosh4(x)")
unary("tanh", "tanh4(x)")
unary("asinh", "asinh4(x)")
unary("acosh", "acosh4(x)")
unary("atanh", "atanh4(x)")
unary("erf", "erf4(x)")
unary("erfc", "erfc4(x)")
unary("erfinv", "erfinv4(x)")
unary("sigmoid", "sigmoid4(x)")
unary("silu", "x * sigmoid4(x)")
unary("mish", "x * tanh4(softplus4(x))")
unary("selu", "1.0507009873554805 * select(1.6732632423543772 * expm1_4(x), x, x > zero)")
unary("log_sigmoid", "min(x, zero) - log1p4(exp(-abs(x)))")
unary("hardswish", "x * clamp(x + 3.0, zero, zero + 6.0) / 6.0")
unary("hardsigmoid", "clamp_nan4(x + 3.0, zero, zero + 6.0) / 6.0")
unary("isnan", AS_BOOL.format("is_nan4(x)"), integer="zero")
unary("isinf", AS_BOOL.format("is_inf4(x)"), integer="zero")
unary("signbit", AS_BOOL.format("bitcast<vec4<i32>>(x) < vec4<i32>(0)"), integer=AS_BOOL.format("x < zero"))
unary("logical_not", AS_BOOL.format("x == zero"), exact=True)

binary("mul.Tensor", "a * b")
binary("div.Tensor", "a / b", exact=False)
binary("minimum.default", "min_nan4(a, b)", integer="min(a, b)")
binary("maximum.default", "max_nan4(a, b)", integer="max(a, b)")
binary("pow.Tensor_Tensor", "pow4(a, b)", integer="ipow4(a, b)")
binary("fmod.Tensor", "fmod4(a, b)", integer="a % b")
binary("remainder.Tensor", "remainder4(a, b)", integer="iremainder4(a, b)")
binary("atan2.default", "atan2_4(a, b)", exact=False)
binary("hypot.default", "hypot4(a, b)", exact=False)
binary("copysign.Tensor", "copysign4(a, b)", exact=False)
binary("logical_and.default", AS_BOOL.format("!((a == zero) | (b == zero))"))
binary("logical_or.default", AS_BOOL.format("!((a == zero) & (b == zero))"))
binary("logical_xor.default", AS_BOOL.format("(a == zero) != (b == zero)"))

with_scalar("mul.Scalar", "x * s0")
with_scalar("div.Scalar", "x / s0", exact=False)
with_scalar("copysign.Scalar", "copysign4(x, s0)", exact=False)
with_scalar("fmod.Scalar", "fmod4(x, s0)", integer="x % s0")
with_scalar("remainder.Scalar", "remainder4(x, s0)", integer="iremainder4(x, s0)")
with_scalar("pow.Tensor_Scalar", "pow4(x, s0)", integer="ipow4(x, s0)")

bitwise("and", "&")
bitwise("or", "|")
bitwise("xor", "^")

comparison("eq", "{a} == {b}")
comparison("ne", "!({a} == {b})")  # WGSL's != is false for NaN on some drivers
comparison("lt", "{a} < {b}")
comparison("le", "{a} <= {b}")
comparison("gt", "{a} > {b}")
comparison("ge", "{a} >= {b}")

parametric("leaky_relu", "negative_slope", "select(s0 * x, x, x > zero)")
parametric("hardshrink", "lambd", "select(x, zero, abs(x) <= s0)")
parametric("softshrink", "lambd", "select(select(zero, x, is_nan4(x)), x - sign(x) * s0, abs(x) > s0)")
parametric("celu", "alpha", "select(s0 * expm1_4(x / s0), x, x > zero)")
parametric("softplus", "beta threshold", "select(softplus4(x * s0) / s0, x, x * s0 > s1)")
parametric("elu", "alpha scale input_scale", "select(s0 * s1 * expm1_4(x * s2), x * s1, x >= zero)")


@elementwise("aten.threshold.default")
def threshold(x: LiveTensor, threshold: Scalar, value: Scalar, out: LiveTensor) -> Elementwise:
    return Elementwise("select(x, s1, x <= s0)", (threshold, value), all_integer(x))


@elementwise("aten.bitwise_not.default")
def bitwise_not(x: LiveTensor, out: LiveTensor) -> Elementwise:
    return Elementwise("1 - x" if x.dtype is DType.bool else "~x", integer=True)


def _factor(number: Scalar, out: LiveTensor) -> Scalar:
    """The sum of booleans is their disjunction: a factor of -1 counts as True, and does not cancel."""
    return int(bool(number)) if out.dtype is DType.bool else number


@elementwise("aten.add.Tensor")
def add(a: LiveTensor, b: LiveTensor, alpha: Scalar, out: LiveTensor) -> Elementwise:
    return Elementwise("a + s0 * b", (_factor(alpha, out),), all_integer(a, b))


@elementwise("aten.sub.Tensor")
def sub(a: LiveTensor, b: LiveTensor, alpha: Scalar, out: LiveTensor) -> Elementwise:
    return Elementwise("a - s0 * b", (alpha,), all_integer(a, b))


@elementwise("aten.rsub.Tensor")
def rsub(a: LiveTensor, b: LiveTensor, alpha: Scalar, out: LiveTensor) -> Elementwise:
    return Elementwise("b - s0 * a", (alpha,), all_integer(a, b))


@elementwise("aten.add.Scalar")
def add_scalar(x: LiveTensor, other: Scalar, alpha: Scalar, out: LiveTensor) -> Elementwise:
    return Elementwise("x + s0", (_factor(other * alpha, out),), all_integer(x, out))


@elementwise("aten.sub.Scalar")
def sub_scalar(x: LiveTensor, other: Scalar, alpha: Scalar, out: LiveTensor) -> Elementwise:
    return Elementwise("x - s0", (other * alpha,), all_integer(x, out))


@elementwise("aten.rsub.Scalar")
def rsub_scalar(x: LiveTensor, other: Scalar, alpha: Scalar, out: LiveTensor) -> Elementwise:
    return Elementwise("s0 - s1 * x", (other, alpha), all_integer(x, out))


@elementwise("aten.pow.Scalar")
def pow_of_scalar(base: Scalar, exponent: LiveTensor, out: LiveTensor) -> Elementwise:
    integer = all_integer(exponent, out)
    return Elementwise("ipow4(s0, x)" if integer else "pow4(s0, x)", (base,), integer)


@elementwise("aten.div.Tensor_mode")
def div_mode(a: LiveTensor, b: LiveTensor, rounding_mode: str | None, out: LiveTensor) -> Elementwise:
    integer = rounding_mode is not None and all_integer(a, b)
    if rounding_mode == "trunc" and out.dtype in (DType.float16, DType.bfloat16):
        # As in torch, which rounds the quotient of two tensors, and does not round that by a number.
        return Elementwise(f"trunc(as_{out.dtype}(a / b))")
    return Elementwise(_quotient("a", "b", rounding_mode, out.dtype), integer=integer)


@elementwise("aten.div.Scalar_mode")
def div_scalar_mode(x: LiveTensor, other: Scalar, rounding_mode: str | None, out: LiveTensor) -> Elementwise:
    integer = rounding_mode is not None and all_integer(x, out)
    number = as_element(other, out.dtype) if integer else other
    return Elementwise(_quotient("x", "s0", rounding_mode, out.dtype), (number,), integer)


def _quotient(a: str, b: str, rounding_mode: str | None, dtype: DType) -> str:
    check(
        rounding_mode in (None, "floor", "trunc"),
        f"rounding_mode must be 'floor', 'trunc' or None, not {rounding_mode!r}",
    )
    if rounding_mode == "floor":
        return f"floordiv4({a}, {b})" if dtype.is_float else f"ifloordiv4({a}, {b})"
    return f"trunc({a} / {b})" if rounding_mode and dtype.is_float else f"{a} / {b}"


@elementwise("aten.clamp.default", "aten.hardtanh.default")
def clamp(x: LiveTensor, low: Scalar | None, high: Scalar | None, out: LiveTensor) -> Elementwise:
    integer = all_integer(x, out)
    given = [bound if bound is None or not integer else as_element(bound, out.dtype) for bound in (low, high)]
    bounds = tuple(
        unbounded if bound is None else bound
        for bound, unbounded in zip(given, (-math.inf, math.inf), strict=True)
    )
    if not integer and any(math.isnan(bound) for bound in bounds):
        return Elementwise("min_nan4(max_nan4(x, s0), s1)", bounds)
    raised = "select(x, s0, x < s0)"  # keeps NaN; WGSL's max may drop it
    return Elementwise(f"select({raised}, s1, {raised} > s1)", bounds, integer)


@elementwise("aten.clamp.Tensor")
def clamp_tensor(
    x: LiveTensor, low: LiveTensor | None, high: LiveTensor | None, out: LiveTensor
) -> Elementwise:
    check(low is not None or high is not None, "there must be a lower or an upper bound")
    integer = all_integer(out)
    lower, upper = ("max", "min") if integer else ("max_nan4", "min_nan4")
    if low is not None and high is not None:
        return Elementwise(f"{upper}({lower}(a, b), c)", integer=integer)
    return Elementwise(f"{lower if high is None else upper}(a, b)", integer=integer)


@elementwise("aten.gelu.default")
def gelu(x: LiveTensor, approximate: str, out: LiveTensor) -> Elementwise:
    if approximate == "tanh":
        return Elementwise("0.5 * x * (1.0 + tanh4(0.7978845608028654 * (x + 0.044715 * x * x * x)))")
    return Elementwise("0.5 * x * (1.0 + erf4(x * 0.7071067811865476))")


@elementwise("aten.logit.default")
def logit(x: LiveTensor, eps: float | None, out: LiveTensor) -> Elementwise:
    bounds = (-math.inf, math.inf) if eps is None else (eps, 1 - eps)
    inside = "min_nan4(max_nan4(x, s0), s1)"
    return Elementwise(f"log4({inside} / (1.0 - {inside}))", bounds)


@elementwise("aten.where.self")
def where(condition: LiveTensor, a: LiveTensor, b: LiveTensor, out: LiveTensor) -> Elementwise:
    return Elementwise("select(c, b, a != zero)", integer=all_integer(out))


@elementwise("aten.masked_fill.Scalar")
def masked_fill(x: LiveTensor, mask: LiveTensor, value: Scalar, out: LiveTensor) -> Elementwise:
    return Elementwise("select(a, s0, b != zero)", (value,), all_integer(x, mask))


@elementwise("aten.masked_fill.Tensor")
def masked_fill_tensor(x: LiveTensor, mask: LiveTensor, value: LiveTensor, out: LiveTensor) -> Elementwise:
    return Elementwise("select(a, c, b != zero)", integer=all_integer(out))


@elementwise("aten.addcmul.default")
def addcmul(x: LiveTensor, a: LiveTensor, b: LiveTensor, value: Scalar, out: LiveTensor) -> Elementwise:
    return Elementwise("a + s0 * b * c", (value,), all_integer(out))


@elementwise("aten.addcdiv.default")
def addcdiv(x: LiveTensor, a: LiveTensor, b: LiveTensor, value: Scalar, out: LiveTensor) -> Elementwise:
    return Elementwise("a + s0 * b / c", (value,))


# From the nearer end, so that a weight of 1 gives b.
_LERP = "select(b - (b - a) * (1.0 - {0}), a + {0} * (b - a), abs({0}) < zero + 0.5)"


@elementwise("aten.lerp.Scalar")
def lerp(a: LiveTensor, b: LiveTensor, weight: Scalar, out: LiveTensor) -> Elementwise:
    return Elementwise(_LERP.format("s0"), (weight,))


@elementwise("aten.lerp.Tensor")
def lerp_tensor(a: LiveTensor, b: LiveTensor, weight: LiveTensor, out: LiveTensor) -> Elementwise:
    return Elementwise(_LERP.format("c"))


# -- conversions ----------------------------------------------------------------------------------


@elementwise("aten._to_copy.default", "dim_order_ops._to_dim_order_copy.default", alias="x")
def to_copy(
    x: LiveTensor,
    dtype: Unused,
    layout: Unused,
    device: Unused,
    pin_memory: Unused,
    non_blocking: Unused,
    memory_format_or_dim_order: Unused,
    out: LiveTensor,
) -> Elementwise | None:
    return cast.describe(x, out)


@elementwise("pteron.cast", alias="x")
def cast(x: LiveTensor, out: LiveTensor) -> Elementwise | None:
    """Convert x to the dtype of the output. If the dtypes are equal, the output is an alias of x."""
    if x.dtype == out.dtype:
        return None
    if out.dtype is DType.bool and x.dtype.is_float:
        return Elementwise(AS_BOOL.format("!(x == zero)"))
    return Elementwise("x", integer=all_integer(x, out))


@elementwise("aten.copy.default")
def copy_from(x: LiveTensor, source: LiveTensor, non_blocking: Unused, out: LiveTensor) -> Elementwise:
    """`source` in the shape and dtype of x."""
    if out.dtype is DType.bool and source.dtype.is_float:
        return Elementwise(AS_BOOL.format("!(b == zero)"))
    return Elementwise("b", integer=all_integer(source, out))


@elementwise("aten.fill.Tensor")
def fill_from(x: LiveTensor, value: LiveTensor, out: LiveTensor) -> Elementwise:
    return copy_from.describe(x, value, None, out)  # type: ignore[return-value]
