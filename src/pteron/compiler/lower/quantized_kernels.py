"""Kernels of quantized programs that are several operators here. ExecuTorch's pass for quantized operators
writes them, where a program computes outside of delegates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ir.values import Arg
from pteron.pte.schema import ScalarType

if TYPE_CHECKING:
    from pteron.compiler.lower.instructions import Lowering


def mixed_product(lowering: Lowering, ids: Sequence[int], where: str) -> None:
    """x times int8 weights [depth, columns] with a scale for each row. Zero points are not read, as there."""
    x, codes, scales = (lowering.read_tensor(index) for index in ids[:3])
    weights = lowering.tensor(DType.float32, codes.max_shape, f"{codes.name}.float")
    args: list[Arg] = [codes, scales, None, 0, -128, 127, ScalarType.CHAR, None, weights]
    lowering.node("quantized_decomposed.dequantize_per_channel.default", args, where)
    lowering.node("aten.mm.default", [x, weights, lowering.write_tensor(ids[-1])], where)


def quantized_sum(lowering: Lowering, ids: Sequence[int], where: str) -> None:
    """Each operand is codes, a scale, a zero point and two bounds. Four numbers for the sum follow."""
    floats = []
    for first in (0, 5):
        codes = lowering.read_tensor(ids[first])
        numbers = [lowering.read(index) for index in ids[first + 1 : first + 5]]
        floats.append(lowering.tensor(DType.float32, codes.max_shape, f"{codes.name}.float"))
        args = [codes, *numbers, None, None, floats[-1]]
        lowering.node("quantized_decomposed.dequantize_per_tensor.default", args, where)
    out = lowering.write_tensor(ids[-1])
    total = lowering.tensor(DType.float32, out.max_shape, f"{out.name}.float")
    lowering.node("aten.add.Tensor", [*floats, 1, total], where)
    numbers = [lowering.read(index) for index in ids[10:14]]
    lowering.node("quantized_decomposed.quantize_per_tensor.default", [total, *numbers, None, out], where)
