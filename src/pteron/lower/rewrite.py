"""Operators that are better spelled by others.

An exporter without the delegate turns a linear layer into a transposed weight and a matrix product.
The transposed weight is the same bytes in another order, so the layer is found again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from pteron.ir.constants import permuted_constant
from pteron.ir.values import Arg, Constant, Tensor

if TYPE_CHECKING:
    from pteron.lower.builder import Builder

# Adds nodes that do the same, or says that it knows no better way.
Rewrite: TypeAlias = "Callable[[Builder, Sequence[Arg], str], bool]"


def addmm(builder: Builder, args: Sequence[Arg], origin: str) -> bool:
    bias, a, b, beta, alpha, out = args
    weight = _transposed_weight(builder, b)
    if weight is None or not isinstance(bias, Tensor) or bias.max_shape != weight.max_shape[:1]:
        return False
    if beta != 1 or alpha != 1:
        return False
    builder.node("aten.linear.default", [a, weight, bias, out], origin)
    return True


def mm(builder: Builder, args: Sequence[Arg], origin: str) -> bool:
    a, b, out = args
    weight = _transposed_weight(builder, b)
    if weight is None:
        return False
    builder.node("aten.linear.default", [a, weight, None, out], origin)
    return True


def _transposed_weight(builder: Builder, b: Arg) -> Tensor | None:
    """The weight [N, K] of which b is the transpose."""
    if isinstance(b, Tensor) and isinstance(b.constant, Constant) and b.constant.dim_order == (1, 0):
        return permuted_constant(builder.graph, b, (1, 0))
    return None


REWRITES: dict[str, Rewrite] = {"aten.addmm.default": addmm, "aten.mm.default": mm}
