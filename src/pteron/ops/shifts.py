"""Elementwise operators on integers that torch added late: shifts of bits, and division rounded down."""

from __future__ import annotations

from pteron.ir.rule import Dispatch, LiveTensor, Scalar, op
from pteron.ops.elementwise import all_integer, binary, binary_dispatch, unary_dispatch

# A shift by more bits than there are, or by less than none, leaves nothing but the sign.
_OUTSIDE = "({0} < zero) | ({0} > zero + 31)"
_LEFT = f"select({{1}} << bitcast<vec4<u32>>({{0}} & (zero + 31)), zero, {_OUTSIDE})"
_RIGHT = f"{{1}} >> bitcast<vec4<u32>>(select({{0}}, zero + 31, {_OUTSIDE}))"


def shift(name: str, expression: str) -> None:
    @op(f"aten.{name}.Tensor_Scalar")
    def by_scalar(x: LiveTensor, other: Scalar, out: LiveTensor) -> Dispatch:
        return unary_dispatch(x, out, expression.format("s0", "x"), exact=True, scalars=(int(other),))

    binary(f"{name}.Tensor", expression.format("b", "a"))


shift("bitwise_left_shift", _LEFT)
shift("bitwise_right_shift", _RIGHT)


@op("aten.floor_divide.default")
def floor_divide(a: LiveTensor, b: LiveTensor, out: LiveTensor) -> Dispatch:
    return binary_dispatch(a, b, out, "ifloordiv4(a, b)" if all_integer(a, b) else "floor(a / b)")
