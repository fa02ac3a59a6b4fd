"""Operators that are better spelled by others.

An exporter without the delegate turns a linear layer into a transposed weight and a matrix product.
The transposed weight is the same bytes in another order, so the layer is found again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from pteron.graph.values import Arg, Constant, Joined, Tensor

if TYPE_CHECKING:
    from pteron.graph.build import Builder

# Adds nodes that do the same, or says that it knows no better way.
Rewrite: TypeAlias = "Callable[[Builder, Sequence[Arg], str], bool]"


def permuted_constant(builder: Builder, source: Tensor, dims: Sequence[Arg]) -> Tensor:
    """A constant with its dimensions permuted: nothing is moved, the order is noted beside the bytes."""
    constant = source.constant
    assert isinstance(constant, Constant)
    rank = len(source.max_shape)
    places = [d % rank for d in dims if isinstance(d, int)]
    order = tuple(places.index(d) for d in constant.dim_order or range(rank))
    shape = tuple(source.max_shape[d] for d in places)
    permuted = Constant(constant.data, constant.host_type, order)
    return builder.tensor(source.dtype, shape, f"{source.name}.permuted", permuted)


def joined_constant(builder: Builder, parts: Sequence[Tensor], axis: int) -> Tensor:
    """Constants of one dtype side by side along an axis: nothing is copied before they are uploaded."""
    shape = list(parts[0].max_shape)
    shape[axis] = sum(part.max_shape[axis] for part in parts)
    name = "+".join(part.name for part in parts)
    return builder.tensor(parts[0].dtype, tuple(shape), name, Joined(tuple(parts), axis))


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
        return permuted_constant(builder, b, (1, 0))
    return None


REWRITES: dict[str, Rewrite] = {"aten.addmm.default": addmm, "aten.mm.default": mm}
