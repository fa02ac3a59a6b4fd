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


def why_static(live: LiveGraph, port: Port, dim: int) -> str | None:
    """Which node refuses a smaller size, where it comes from, and what would help. None: it is dynamic."""
    reason = refusal(live, port, dim)
    if reason is None or dim in port.pinned:
        return None if reason is None else str(reason)
    node = _node(reason)
    place = "" if node is None else f" ({node.origin})"
    return f"{reason}{place}. {_help(node, port, dim)}"


def _fixed(port: Port, dim: int, size: int, reason: InputError, error: InputError) -> str:
    """reason: of the node that fixes the size. error: of this call, which another node may have refused."""
    most, node = port.max_shape[dim], _node(reason)
    if isinstance(error, RefusedByNode) and error.node is node:
        reason = error
    fixed = (
        "" if node is not None and _has_weights(node, most) else "The exporter made this size a constant. "
    )
    place = "" if node is None else f" ({node.origin})"
    return (
        f"{port.name}: dimension {dim} is {size}, but the program runs only at {most}. {fixed}"
        f"The first node that refuses another size: {reason}{place}. {_help(node, port, dim)}"
    )


def _node(reason: InputError) -> Node | None:
    """The node that refuses a size."""
    found = reason if isinstance(reason, RefusedByNode) else reason.__cause__
    return found.node if isinstance(found, RefusedByNode) else None


def _help(node: Node | None, port: Port, dim: int) -> str:
    """The change of the module or of the export that would make a size dynamic."""
    size = port.max_shape[dim]
    if node is not None and _has_weights(node, size):
        return f"Its weights have the size {size}, so no export can change it"
    again = f"Export the model again, with dimension {dim} of {port.name} in dynamic_shapes"
    if node is None or size < 2 or size not in _numbers(node):
        return again
    return (
        f"Its arguments have the number {size}: write {port.name}.shape[{dim}] or -1 in the module. {again}"
    )


def _has_weights(node: Node, size: int) -> bool:
    """Whether a node reads constants with a dimension of this size."""
    return any(isinstance(v, Tensor) and v.constant is not None and size in v.max_shape for v in node.reads)


def _numbers(node: Node) -> set[int]:
    """The numbers among the arguments of a node, and of those that it replaces."""
    lists = [node.args, *(arg for arg in node.args if isinstance(arg, tuple))]
    own = {arg for args in lists for arg in args if isinstance(arg, int)}
    return own.union(*map(_numbers, node.replaces))


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
