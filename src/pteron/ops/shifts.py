"""Bit shifts, and floor division."""

from __future__ import annotations

from pteron.ir.rule import LiveTensor, Scalar
from pteron.ops.arithmetic import binary
from pteron.ops.elementwise import Elementwise, all_integer, elementwise

# A shift by more than 31 bits, or by a negative number, gives 0. A right shift of a negative number gives -1.
_OUTSIDE = "({0} < zero) | ({0} > zero + 31)"
_LEFT = f"select({{1}} << bitcast<vec4<u32>>({{0}} & (zero + 31)), zero, {_OUTSIDE})"
_RIGHT = f"{{1}} >> bitcast<vec4<u32>>(select({{0}}, zero + 31, {_OUTSIDE}))"


def shift(name: str, expression: str) -> None:
    @elementwise(f"aten.{name}.Tensor_Scalar")
    def by_scalar(x: LiveTensor, other: Scalar, out: LiveTensor) -> Elementwise:
        return Elementwise(expression.format("s0", "x"), (int(other),), all_integer(x))

    binary(f"{name}.Tensor", expression.format("b", "a"))


shift("bitwise_left_shift", _LEFT)
shift("bitwise_right_shift", _RIGHT)

binary("floor_divide.default", "floor(a / b)", integer="ifloordiv4(a, b)")
