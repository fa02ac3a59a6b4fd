"""Bit shifts, and floor division."""

from __future__ import annotations

from pteron.compiler.ir.rule import LiveTensor, Scalar
from pteron.compiler.ops.arithmetic import binary
from pteron.compiler.ops.elementwise import Elementwise, all_integer, elementwise


def shift(name: str, operator: str, function: str) -> None:
    """`operator` is the name of Python's operator, which torch has as a second name."""

    @elementwise(f"aten.{name}.Tensor_Scalar", f"aten.{operator}.Scalar")
    def by_scalar(x: LiveTensor, other: Scalar, out: LiveTensor) -> Elementwise:
        return Elementwise(f"{function}(x, s0)", (int(other),), all_integer(x))

    for either in (name, operator):
        binary(f"{either}.Tensor", f"{function}(a, b)")


shift("bitwise_left_shift", "__lshift__", "ishl4")
shift("bitwise_right_shift", "__rshift__", "ishr4")

binary("floor_divide.default", "floordiv4(a, b)", integer="ifloordiv4(a, b)")
