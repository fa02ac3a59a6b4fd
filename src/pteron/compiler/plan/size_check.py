"""Refuse live shapes that the export did not allow, in the words of the caller."""

from __future__ import annotations

from collections.abc import Mapping

from pteron.compiler.ir.live import Live
from pteron.compiler.ir.sizes import FreeSize, Size
from pteron.compiler.ir.values import Graph, Port, Tensor, ValueId
from pteron.errors import InputError


class SizeCheck:
    """Compares the shapes of inputs with the sizes in the file. A file without sizes allows everything."""

    def __init__(self, graph: Graph) -> None:
        self._ports = [
            (port, port.value.id)
            for port in graph.inputs
            if isinstance(port.value, Tensor) and port.sizes is not None
        ]
        self._accepted: list[Live] = []

    def check(self, shapes: Mapping[ValueId, Live]) -> None:
        """Raise InputError for a shape that is not allowed. The shapes of the last call are not checked."""
        given = [shapes.get(value, port.max_shape) for port, value in self._ports]
        if given == self._accepted:
            return
        known: dict[FreeSize, tuple[int, str]] = {}
        for (port, _), shape in zip(self._ports, given, strict=True):
            assert isinstance(shape, tuple) and port.sizes is not None
            for dim, (given_size, size) in enumerate(zip(shape, port.sizes, strict=True)):
                _check(port, dim, given_size, size, known)
        self._accepted = given


def _check(
    port: Port, dim: int, given: int, size: int | Size, known: dict[FreeSize, tuple[int, str]]
) -> None:
    """Check one dimension against its range, and against the dimensions before it."""
    name = f"{port.name}[{dim}]"
    if isinstance(size, int):
        if given != size:
            raise InputError(f"{name} must be {size}, not {given}: it was exported as a constant")
        return
    if given not in size.values:
        raise InputError(f"{name} must be {size.rule()}, not {given}: the program was exported for these")
    value, other = known.setdefault(size.of, ((given - size.plus) // size.times, f"{name} is {given}"))
    if size.where(value) != given:
        raise InputError(f"{name} must be {size.where(value)} where {other}, not {given}")
