"""Elementwise operators: one line each.

The expression is WGSL over four values at a time. `x` (or `a`, `b` and `c`) are floats, or integers
where the operator is marked `exact`: it then keeps integer tensors integer. `zero` is four zeros.
Functions whose names end in 4 are those of wgsl/lib/math.wgsl.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from inspect import Parameter, Signature
from typing import Any

from pteron.ir.rule import (
    Dispatch,
    DType,
    LiveTensor,
    Number,
    Scalar,
    Scratch,
    Unused,
    check,
    numel,
    op,
    quads,
    threads,
)
from pteron.ops.shapes import broadcast, broadcast_strides, merge

F32_MAX = 3.4028234663852886e38
I32_MIN, I32_MAX = -(2**31), 2**31 - 1
TRUTH = "select(vec4<i32>(0), vec4<i32>(1), {})"


def unary_dispatch(
    x: LiveTensor,
    out: LiveTensor,
    expression: str,
    *,
    exact: bool = False,
    scalars: Sequence[float | int] = (),
) -> Dispatch:
    """y = expression(x). Scalars are `s0`, `s1`, `s2` in the expression, of the type it is computed in."""
    out.resize(x.shape)
    integer = exact and not x.dtype.is_float
    code = _function({"x": "x_t4"}, expression, integer, len(scalars))
    return Dispatch(
        "unary", {"x": x, "y": out}, _params(out.numel, scalars, 3), threads(quads(x.numel)), code=code
    )


def binary_dispatch(
    a: LiveTensor,
    b: LiveTensor,
    out: LiveTensor,
    expression: str,
    *,
    exact: bool = True,
    scalar: float | int = 0,
) -> Dispatch:
    """y = expression(a, b) with broadcasting. Integers stay integers if both operands are and `exact`."""
    shape = broadcast(a.shape, b.shape)
    out.resize(shape)
    integer = exact and all_integer(a, b)
    code = _function({"a": "a_t4", "b": "b_t4"}, expression, integer, 1)
    params = {
        **_params(out.numel, (scalar,), 1),
        **walks(shape, a=a, b=b),
        "a_same": int(a.numel == out.numel),
        "b_same": int(b.numel == out.numel),
    }
    return Dispatch("binary", {"a": a, "b": b, "y": out}, params, threads(quads(out.numel)), code=code)


def ternary_dispatch(
    a: LiveTensor,
    b: LiveTensor,
    c: LiveTensor,
    out: LiveTensor,
    expression: str,
    *,
    exact: bool = True,
    scalar: float | int = 0,
) -> Dispatch:
    """y = expression(a, b, c) with broadcasting. Integers stay integers if the output is one and `exact`."""
    shape = broadcast(a.shape, b.shape, c.shape)
    out.resize(shape)
    code = _function({"a": "a_t4", "b": "b_t4", "c": "c_t4"}, expression, exact and all_integer(out), 1)
    params = {**_params(out.numel, (scalar,), 1), **walks(shape, a=a, b=b, c=c)}
    return Dispatch(
        "ternary", {"a": a, "b": b, "c": c, "y": out}, params, threads(quads(out.numel)), code=code
    )


def widened(out: LiveTensor) -> tuple[LiveTensor | Scratch, list[Dispatch]]:
    """Where a kernel may store elements one by one, and what brings them to `out` from there.

    A word holds several elements of a narrow type, and no two invocations may write to one word.
    """
    if out.dtype.itemsize == 4:
        return out, []
    wide = Scratch("wide", 4 * numel(out.max_shape), DType.float32 if out.dtype.is_float else DType.int32)
    return wide, [transfer(wide, out, out.numel)]


def transfer(x: LiveTensor | Scratch, y: LiveTensor | Scratch, count: int) -> Dispatch:
    """The same elements in the same order, converted from one dtype to another."""
    whole = not (x.dtype.is_float or y.dtype.is_float)
    code = _function({"x": "x_t4"}, "x", whole, 0)
    return Dispatch("unary", {"x": x, "y": y}, _params(count, (), 3), threads(quads(count)), code=code)


def all_integer(*tensors: LiveTensor) -> bool:
    return not any(t.dtype.is_float for t in tensors)


def is_whole(value: float | int) -> bool:
    return isinstance(value, int) or value.is_integer()


def _function(arguments: dict[str, str], expression: str, integer: bool, scalars: int) -> str:
    kind = "vec4<i32>" if integer else "vec4<f32>"
    lines = [f"let {name} = {kind}({name}_in);" for name in arguments]
    lines += [f"let s{i} = {kind}(p.{'k' if integer else 's'}{i});" for i in range(scalars)]
    lines += [f"let zero = {kind}();"] * ("zero" in expression)
    takes = ", ".join(f"{name}_in: {kind}" for name, kind in arguments.items())
    return f"fn apply({takes}) -> y_t4 {{ {' '.join(lines)} return y_t4({expression}); }}"


def _params(count: int, scalars: Sequence[float | int], places: int) -> dict[str, Number]:
    params: dict[str, Number] = {"quads": quads(count)}
    for i in range(places):
        value = scalars[i] if i < len(scalars) else 0
        params |= {f"s{i}": as_f32(value), f"k{i}": as_i32(value)}
    return params


def walks(shape: tuple[int, ...], **operands: LiveTensor) -> dict[str, Number]:
    """The parameters that lead from an element of the output to those of operands broadcast to it."""
    sizes, strides = merge(shape, *(broadcast_strides(x.shape, shape) for x in operands.values()))
    named = {f"{name}_strides": walk for name, walk in zip(operands, strides, strict=True)}
    return {"rank": len(sizes), "sizes": sizes, **named}


def as_f32(value: float | int) -> float:
    """As a float32 parameter: what lies beyond its range is infinite."""
    value = float(value)
    return value if math.isnan(value) or abs(value) <= F32_MAX else math.copysign(math.inf, value)


def as_i32(value: float | int) -> int:
    """As an int32 parameter: what lies beyond its range is its end."""
    if isinstance(value, float) and not math.isfinite(value):
        return 0 if math.isnan(value) else (I32_MAX if value > 0 else I32_MIN)
    return max(I32_MIN, min(I32_MAX, int(value)))


# -- how operators are declared -------------------------------------------------------------------


def unary(name: str, expression: str, *, exact: bool = False, integer: str | None = None) -> None:
    """`integer` is the expression for integer tensors, where it is not the same."""

    @op(f"aten.{name}.default")
    def rule(x: LiveTensor, out: LiveTensor) -> Dispatch:
        if integer is not None and all_integer(x):
            return unary_dispatch(x, out, integer, exact=True)
        return unary_dispatch(x, out, expression, exact=exact)


def binary(name: str, expression: str, *, exact: bool = True, integer: str | None = None) -> None:
    @op(f"aten.{name}")
    def rule(a: LiveTensor, b: LiveTensor, out: LiveTensor) -> Dispatch:
        whole = integer is not None and all_integer(a, b)
        return binary_dispatch(a, b, out, integer if whole and integer else expression, exact=exact)


def with_scalar(name: str, expression: str, *, exact: bool = True, integer: str | None = None) -> None:
    """A binary operator whose right operand is the scalar `s0`."""

    @op(f"aten.{name}")
    def rule(x: LiveTensor, other: Scalar, out: LiveTensor) -> Dispatch:
        whole = exact and all_integer(x, out)
        return unary_dispatch(
            x, out, integer if whole and integer else expression, exact=whole, scalars=(other,)
        )


def parametric(name: str, attributes: str, expression: str) -> None:
    """A float operator with scalar attributes, which are `s0`, `s1` and so on in the expression."""

    def rule(x: LiveTensor, *rest: Any) -> Dispatch:
        *scalars, out = rest
        return unary_dispatch(x, out, expression, scalars=scalars)

    takes = {"x": LiveTensor, **dict.fromkeys(attributes.split(), Scalar), "out": LiveTensor}
    rule.__signature__ = Signature(  # type: ignore[attr-defined]
        [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, annotation=kind) for name, kind in takes.items()]
    )
    op(f"aten.{name}.default")(rule)


def comparison(name: str, operator: str) -> None:
    @op(f"aten.{name}.Tensor")
    def tensors(a: LiveTensor, b: LiveTensor, out: LiveTensor) -> Dispatch:
        return binary_dispatch(a, b, out, TRUTH.format(f"a {operator} b"))

    @op(f"aten.{name}.Scalar")
    def scalar(x: LiveTensor, other: Scalar, out: LiveTensor) -> Dispatch:
        # An integer tensor against 2.5 must be compared as floats.
        return unary_dispatch(
            x, out, TRUTH.format(f"x {operator} s0"), exact=is_whole(other), scalars=(other,)
        )


def bitwise(name: str, operator: str) -> None:
    """On booleans the bits are 0 and 1, so that the same expression serves."""
    binary(f"bitwise_{name}.Tensor", f"a {operator} b")

    @op(f"aten.bitwise_{name}.Scalar")
    def scalar(x: LiveTensor, other: Scalar, out: LiveTensor) -> Dispatch:
        return unary_dispatch(x, out, f"x {operator} s0", exact=True, scalars=(int(other),))


# -- the operators --------------------------------------------------------------------------------

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
unary("exp", "exp(x)")
unary("exp2", "exp2(x)")
unary("expm1", "expm1_4(x)")
unary("log", "log4(x)")
unary("log2", "log4(x) * 1.4426950408889634")
unary("log10", "log4(x) * 0.4342944819032518")
unary("log1p", "log1p4(x)")
unary("sin", "sin(x)")
unary("cos", "cos(x)")
unary("tan", "sin(x) / cos(x)")
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
unary("erfc", "1.0 - erf4(x)")
unary("sigmoid", "sigmoid4(x)")
unary("silu", "x * sigmoid4(x)")
unary("mish", "x * tanh4(softplus4(x))")
unary("selu", "1.0507009873554805 * select(1.6732632423543772 * expm1_4(x), x, x > zero)")
unary("log_sigmoid", "-softplus4(-x)")
unary("hardswish", "x * clamp(x + 3.0, zero, zero + 6.0) / 6.0")
unary("hardsigmoid", "clamp(x + 3.0, zero, zero + 6.0) / 6.0")
unary("isnan", TRUTH.format("is_nan4(x)"), integer="zero")
unary("isinf", TRUTH.format("is_inf4(x)"), integer="zero")
unary("logical_not", TRUTH.format("x == zero"), exact=True)

binary("mul.Tensor", "a * b")
binary("div.Tensor", "a / b", exact=False)
binary("minimum.default", "min_nan4(a, b)", integer="min(a, b)")
binary("maximum.default", "max_nan4(a, b)", integer="max(a, b)")
binary("pow.Tensor_Tensor", "pow4(a, b)", integer="ipow4(a, b)")
binary("fmod.Tensor", "a % b")
binary("remainder.Tensor", "remainder4(a, b)", integer="iremainder4(a, b)")
binary("atan2.default", "atan2_4(a, b)", exact=False)
binary("logical_and.default", TRUTH.format("(a != zero) & (b != zero)"))
binary("logical_or.default", TRUTH.format("(a != zero) | (b != zero)"))
binary("logical_xor.default", TRUTH.format("(a != zero) != (b != zero)"))

with_scalar("mul.Scalar", "x * s0")
with_scalar("div.Scalar", "x / s0", exact=False)
with_scalar("fmod.Scalar", "x % s0")
with_scalar("remainder.Scalar", "remainder4(x, s0)", integer="iremainder4(x, s0)")
with_scalar("pow.Tensor_Scalar", "pow4(x, s0)", integer="ipow4(x, s0)")

bitwise("and", "&")
bitwise("or", "|")
bitwise("xor", "^")

comparison("eq", "==")
comparison("ne", "!=")
comparison("lt", "<")
comparison("le", "<=")
comparison("gt", ">")
comparison("ge", ">=")

parametric("leaky_relu", "negative_slope", "select(s0 * x, x, x >= zero)")
parametric("hardshrink", "lambd", "select(x, zero, abs(x) <= s0)")
parametric("softshrink", "lambd", "select(zero, x - sign(x) * s0, abs(x) > s0)")
parametric("celu", "alpha", "select(s0 * expm1_4(x / s0), x, x > zero)")
parametric("softplus", "beta threshold", "select(softplus4(x * s0) / s0, x, x * s0 > s1)")
parametric("threshold", "threshold value", "select(x, s1, x <= s0)")
parametric("elu", "alpha scale input_scale", "select(s0 * s1 * expm1_4(x * s2), x * s1, x > zero)")


@op("aten.bitwise_not.default")
def bitwise_not(x: LiveTensor, out: LiveTensor) -> Dispatch:
    return unary_dispatch(x, out, "1 - x" if x.dtype is DType.bool else "~x", exact=True)


@op("aten.add.Tensor")
def add(a: LiveTensor, b: LiveTensor, alpha: Scalar, out: LiveTensor) -> Dispatch:
    return binary_dispatch(a, b, out, "a + s0 * b", scalar=alpha)


@op("aten.sub.Tensor")
def sub(a: LiveTensor, b: LiveTensor, alpha: Scalar, out: LiveTensor) -> Dispatch:
    return binary_dispatch(a, b, out, "a - s0 * b", scalar=alpha)


@op("aten.rsub.Tensor")
def rsub(a: LiveTensor, b: LiveTensor, alpha: Scalar, out: LiveTensor) -> Dispatch:
    return binary_dispatch(a, b, out, "b - s0 * a", scalar=alpha)


@op("aten.add.Scalar")
def add_scalar(x: LiveTensor, other: Scalar, alpha: Scalar, out: LiveTensor) -> Dispatch:
    return unary_dispatch(x, out, "x + s0", exact=all_integer(out), scalars=(other * alpha,))


@op("aten.sub.Scalar")
def sub_scalar(x: LiveTensor, other: Scalar, alpha: Scalar, out: LiveTensor) -> Dispatch:
    return unary_dispatch(x, out, "x - s0", exact=all_integer(out), scalars=(other * alpha,))


@op("aten.rsub.Scalar")
def rsub_scalar(x: LiveTensor, other: Scalar, alpha: Scalar, out: LiveTensor) -> Dispatch:
    return unary_dispatch(x, out, "s0 - s1 * x", exact=all_integer(out), scalars=(other, alpha))


@op("aten.pow.Scalar")
def pow_of_scalar(base: Scalar, exponent: LiveTensor, out: LiveTensor) -> Dispatch:
    integer = all_integer(exponent, out)
    return unary_dispatch(
        exponent, out, "ipow4(s0, x)" if integer else "pow4(s0, x)", exact=integer, scalars=(base,)
    )


@op("aten.div.Tensor_mode")
def div_mode(a: LiveTensor, b: LiveTensor, rounding_mode: str | None, out: LiveTensor) -> Dispatch:
    return binary_dispatch(
        a, b, out, _quotient("a", "b", rounding_mode, all_integer(a, b)), exact=bool(rounding_mode)
    )


@op("aten.div.Scalar_mode")
def div_scalar_mode(x: LiveTensor, other: Scalar, rounding_mode: str | None, out: LiveTensor) -> Dispatch:
    integer = all_integer(x, out)
    return unary_dispatch(
        x,
        out,
        _quotient("x", "s0", rounding_mode, integer),
        exact=integer and bool(rounding_mode),
        scalars=(other,),
    )


def _quotient(a: str, b: str, rounding_mode: str | None, integer: bool) -> str:
    check(
        rounding_mode in (None, "floor", "trunc"),
        f"rounding_mode must be 'floor', 'trunc' or None, not {rounding_mode!r}",
    )
    if rounding_mode == "floor":
        return f"ifloordiv4({a}, {b})" if integer else f"floor({a} / {b})"
    return f"{a} / {b}" if integer or rounding_mode is None else f"trunc({a} / {b})"


@op("aten.clamp.default", "aten.hardtanh.default")
def clamp(x: LiveTensor, low: Scalar | None, high: Scalar | None, out: LiveTensor) -> Dispatch:
    bounds = (-math.inf if low is None else low, math.inf if high is None else high)
    raised = "select(x, s0, x < s0)"  # NaN passes through, which max would not promise
    return unary_dispatch(
        x, out, f"select({raised}, s1, {raised} > s1)", exact=all_integer(out), scalars=bounds
    )


@op("aten.clamp.Tensor")
def clamp_tensor(x: LiveTensor, low: LiveTensor | None, high: LiveTensor | None, out: LiveTensor) -> Dispatch:
    whole = all_integer(out)
    lower, upper = ("max", "min") if whole else ("max_nan4", "min_nan4")
    if low is not None and high is not None:
        return ternary_dispatch(x, low, high, out, f"{upper}({lower}(a, b), c)")
    bound = low if low is not None else high
    assert bound is not None, "torch refuses a clamp without bounds"
    return binary_dispatch(x, bound, out, f"{lower if low is not None else upper}(a, b)", exact=whole)


@op("aten.gelu.default")
def gelu(x: LiveTensor, approximate: str, out: LiveTensor) -> Dispatch:
    if approximate == "tanh":
        return unary_dispatch(
            x, out, "0.5 * x * (1.0 + tanh4(0.7978845608028654 * (x + 0.044715 * x * x * x)))"
        )
    return unary_dispatch(x, out, "0.5 * x * (1.0 + erf4(x * 0.7071067811865476))")


@op("aten.logit.default")
def logit(x: LiveTensor, eps: float | None, out: LiveTensor) -> Dispatch:
    bounds = (-math.inf, math.inf) if eps is None else (eps, 1 - eps)
    inside = "min_nan4(max_nan4(x, s0), s1)"
    return unary_dispatch(x, out, f"log4({inside} / (1.0 - {inside}))", scalars=bounds)


@op("aten.where.self")
def where(condition: LiveTensor, a: LiveTensor, b: LiveTensor, out: LiveTensor) -> Dispatch:
    return ternary_dispatch(condition, a, b, out, "select(c, b, a != zero)")


@op("aten.masked_fill.Scalar")
def masked_fill(x: LiveTensor, mask: LiveTensor, value: Scalar, out: LiveTensor) -> Dispatch:
    return binary_dispatch(x, mask, out, "select(a, s0, b != zero)", scalar=value)


@op("aten.masked_fill.Tensor")
def masked_fill_tensor(x: LiveTensor, mask: LiveTensor, value: LiveTensor, out: LiveTensor) -> Dispatch:
    return ternary_dispatch(mask, value, x, out, "select(c, b, a != zero)")


@op("aten.addcmul.default")
def addcmul(x: LiveTensor, a: LiveTensor, b: LiveTensor, value: Scalar, out: LiveTensor) -> Dispatch:
    return ternary_dispatch(x, a, b, out, "a + s0 * b * c", scalar=value)


@op("aten.addcdiv.default")
def addcdiv(x: LiveTensor, a: LiveTensor, b: LiveTensor, value: Scalar, out: LiveTensor) -> Dispatch:
    return ternary_dispatch(x, a, b, out, "a + s0 * b / c", exact=False, scalar=value)


@op("aten.lerp.Scalar")
def lerp(a: LiveTensor, b: LiveTensor, weight: Scalar, out: LiveTensor) -> Dispatch:
    return binary_dispatch(a, b, out, "a + s0 * (b - a)", scalar=weight)


@op("aten.lerp.Tensor")
def lerp_tensor(a: LiveTensor, b: LiveTensor, weight: LiveTensor, out: LiveTensor) -> Dispatch:
    return ternary_dispatch(a, b, weight, out, "a + c * (b - a)")


# -- conversions ----------------------------------------------------------------------------------


@op("aten._to_copy.default", alias="x")
def to_copy(
    x: LiveTensor,
    dtype: Unused,
    layout: Unused,
    device: Unused,
    pin_memory: Unused,
    non_blocking: Unused,
    memory_format: Unused,
    out: LiveTensor,
) -> Dispatch | None:
    return cast(x, out)


@op("dim_order_ops._to_dim_order_copy.default", alias="x")
def to_dim_order_copy(
    x: LiveTensor,
    dtype: Unused,
    layout: Unused,
    device: Unused,
    pin_memory: Unused,
    non_blocking: Unused,
    dim_order: Unused,
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
