"""Refuse live shapes that the export did not allow, in the words of the caller."""

from __future__ import annotations

from collections.abc import Mapping

from pteron.compiler.ir.live import Live
from pteron.compiler.ir.sizes import FreeSize, Size
from pteron.compiler.ir.values import Graph, Port, Tensor, ValueId
from pteron.errors import InputError


class SizeCheck:
    """Compares the shapes of inputs with the sizes in the file, and those that were pinned at load.

    A file without sizes allows everything else.
    """

    def __init__(self, graph: Graph) -> None:
        self._ports = [
            (port, port.value.id, sizes)
            for port in graph.inputs
            if isinstance(port.value, Tensor) and (sizes := held_sizes(port))
        ]
        self._accepted: list[Live] = []

    def check(self, shapes: Mapping[ValueId, Live]) -> None:
        """Raise InputError for a shape that is not allowed. The shapes of the last call are not checked."""
        given = [shapes.get(value, port.max_shape) for port, value, _ in self._ports]
        if given == self._accepted:
            return
        known: dict[FreeSize, tuple[int, str, str]] = {}
        for (port, _, sizes), shape in zip(self._ports, given, strict=True):
            assert isinstance(shape, tuple)
            for dim, size in sizes.items():
                _check(port, dim, shape[dim], size, known)
        self._accepted = given


def held_sizes(port: Port) -> dict[int, int | Size]:
    """The sizes of an input that calls are held to, by dimension."""
    if port.sizes is None:
        return {dim: port.max_shape[dim] for dim in port.pinned}
    return dict(enumerate(port.sizes))


def _check(
    port: Port, dim: int, given: int, size: int | Size, known: dict[FreeSize, tuple[int, str, str]]
) -> None:
    """Check one dimension against its range, and against the dimensions before it."""
    name = f"{port.name}[{dim}]"
    if isinstance(size, int):
        if given != size:
            why = "pinned at load, by shapes=" if dim in port.pinned else "exported as a constant"
            raise InputError(f"{name} must be {size}, not {given}: it was {why}")
        return
    if given not in size.values:
        made = "loaded" if dim in port.limited else "exported"
        follows = f". {size.meaning(name)}" if size.times > 1 or size.plus else ""
        raise InputError(
            f"{name} must be {size.rule()}, not {given}: the program was {made} for these{follows}"
        )
    value, where, why = known.setdefault(
        size.of, ((given - size.plus) // size.times, f"{name} is {given}", size.meaning(name))
    )
    if size.where(value) != given:
        raise InputError(
            f"{name} must be {size.where(value)} where {where}, not {given}: {name} is {size.formula}, {why}"
        )
