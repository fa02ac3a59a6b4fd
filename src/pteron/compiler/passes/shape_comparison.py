"""Whether two tensors have the same shape in every call.

Equal bounds do not tell it: of two independent sizes up to 8, one may be 1 in a call. A sum then repeats a
row, which few fused kernels can do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property

from pteron.compiler.ir.live import Live
from pteron.compiler.ir.problems import CannotRun
from pteron.compiler.ir.values import Graph, Tensor, ValueId
from pteron.compiler.plan.sweep import plan
from pteron.errors import InputError


class ShapeComparison:
    """Compares shapes in calls where sizes of inputs are 1."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        inputs = [p.value for p in graph.inputs if p.resizable and isinstance(p.value, Tensor)]
        self._inputs = {tensor.id: tensor.max_shape for tensor in inputs}
        self._dims = [(i, d) for i, shape in self._inputs.items() for d, n in enumerate(shape) if n > 1]

    def are_alike(self, a: Tensor, b: Tensor) -> bool:
        if a.max_shape != b.max_shape:
            return False
        if len(self._dims) <= 1 and a.constant is None and b.constant is None:
            return True  # both follow from the only size that may vary
        return all(shapes[a.id] == shapes[b.id] for shapes in self._tried)

    @cached_property
    def _tried(self) -> list[list[Live]]:
        """The shapes of all values, for each dimension alone, and for dimensions of one size together."""
        try:
            live = plan(self._graph)
        except CannotRun:
            return []  # the error is raised when the graph is planned for a device
        same = defaultdict(list)
        for value, dim in self._dims:
            same[self._inputs[value][dim]].append((value, dim))
        tried = []
        for dims in (*([dim] for dim in self._dims), *same.values()):
            try:
                tried.append(live.preview(self._at_one(dims)))
            except InputError:
                continue  # these sizes are refused
        return tried

    def _at_one(self, dims: Iterable[tuple[ValueId, int]]) -> dict[ValueId, Live]:
        shapes: dict[ValueId, list[int]] = {}
        for value, dim in dims:
            shapes.setdefault(value, list(self._inputs[value]))[dim] = 1
        return {value: tuple(shape) for value, shape in shapes.items()}
