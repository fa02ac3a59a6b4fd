"""Explain the error of a sweep in terms of the inputs: which sizes do not fit, and what the caller can do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pteron.compiler.ir.live import Live
from pteron.compiler.ir.values import Node, Port, Shape, Tensor, ValueId
from pteron.compiler.plan.dynamic import refusal
from pteron.compiler.plan.refused_by_node import RefusedByNode
from pteron.compiler.plan.sweep import LiveGraph
from pteron.errors import InputError


def explained(error: InputError, live: LiveGraph, changes: Mapping[ValueId, Live]) -> InputError:
    """The error of a sweep. It names a size that cannot vary, or two inputs whose sizes must be equal."""
    given = [
        (port, shape)
        for port in live.graph.inputs
        if isinstance(port.value, Tensor) and isinstance(shape := changes.get(port.value.id), tuple)
    ]
    for port, shape in given:
        for dim, (size, most) in enumerate(zip(shape, port.max_shape, strict=True)):
            reason = refusal(live, port, dim) if size != most else None
            if reason is not None:
                return InputError(_fixed(port, dim, size, reason, error))
    for one, other in _pairs(given):
        if _accepts(live, {**changes, _id(one.port): one.with_size(other.size)}):
            return InputError(
                f"{one}, but {other}. The program needs the same size in both. The first node that refuses "
                f"these sizes: {error}"
            )
    return InputError(str(error))


def _fixed(port: Port, dim: int, size: int, reason: InputError, error: InputError) -> str:
    """reason: of the node that fixes the size. error: of this call, which another node may have refused."""
    most = port.max_shape[dim]
    node = reason.node if isinstance(reason, RefusedByNode) else None
    if isinstance(error, RefusedByNode) and error.node is node:
        reason = error
    told = f"{port.name}: dimension {dim} is {size}, but the program runs only at {most}. "
    if node is not None and _has_weights(node, most):
        return f"{told}Weights have this size, so no export can change it. The first node with such: {reason}"
    return (
        f"{told}The exporter made this size a constant. The first node that refuses another size: {reason}. "
        f"Export the model again, with dimension {dim} of {port.name} in dynamic_shapes"
    )


def _has_weights(node: Node, size: int) -> bool:
    """Whether a node reads constants with a dimension of this size."""
    return any(isinstance(v, Tensor) and v.constant is not None and size in v.max_shape for v in node.reads)


class _GivenSize:
    """A dimension of an input in a call."""

    def __init__(self, port: Port, shape: Shape, dim: int) -> None:
        self.port, self.shape, self.dim = port, shape, dim

    @property
    def size(self) -> int:
        return self.shape[self.dim]

    def with_size(self, size: int) -> Shape:
        return (*self.shape[: self.dim], size, *self.shape[self.dim + 1 :])

    def __str__(self) -> str:
        return f"dimension {self.dim} of {self.port.name} is {self.size}"


def _pairs(given: list[tuple[Port, Shape]]) -> Iterator[tuple[_GivenSize, _GivenSize]]:
    """Dimensions of different inputs with one largest size, but different sizes in this call."""
    dims = [_GivenSize(port, shape, d) for port, shape in given if port.resizable for d in range(len(shape))]
    for one in dims:
        for other in dims:
            same = one.port.max_shape[one.dim] == other.port.max_shape[other.dim]
            if same and one.port is not other.port and one.size != other.size:
                yield one, other


def _accepts(live: LiveGraph, changes: Mapping[ValueId, Live]) -> bool:
    try:
        live.preview(changes)
    except InputError:
        return False
    return True


def _id(port: Port) -> ValueId:
    assert isinstance(port.value, Tensor)
    return port.value.id
