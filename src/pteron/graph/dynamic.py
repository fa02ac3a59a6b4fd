"""Which dimensions a call may make smaller, and which outputs follow.

A file only tells the largest sizes, not which of them may vary. The graph knows: a dimension is
dynamic if the sweep accepts a smaller one, by itself or together with the dimensions of the same
size in other inputs. All of it is integer arithmetic on the rules; nothing runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from pteron.graph.live import Live, LiveGraph
from pteron.graph.values import Graph, Tensor, ValueId

Dim = tuple[ValueId, int]


def dynamic_dims(graph: Graph, live: LiveGraph) -> dict[ValueId, tuple[int, ...]]:
    """Per input and output tensor, the dimensions that vary."""
    inputs = {p.value.id: p.value for p in graph.inputs if p.resizable and isinstance(p.value, Tensor)}
    outputs = [p.value for p in graph.outputs if isinstance(p.value, Tensor)]
    candidates = [(i, d) for i, t in inputs.items() for d, size in enumerate(t.max_shape) if size > 1]
    found: dict[ValueId, set[int]] = defaultdict(set)

    def explore(dims: Iterable[Dim]) -> None:
        changes: dict[ValueId, list[int]] = {}
        for value, dim in dims:
            changes.setdefault(value, list(inputs[value].max_shape))[dim] -= 1
        shapes: dict[ValueId, Live] = {value: tuple(shape) for value, shape in changes.items()}
        after = live.preview(shapes)
        if after is None:
            return
        for value, dim in dims:
            found[value].add(dim)
        for tensor in outputs:
            shape = after[tensor.id]
            assert isinstance(shape, tuple)
            found[tensor.id].update(d for d, size in enumerate(shape) if size != tensor.max_shape[d])

    for candidate in candidates:
        explore([candidate])
    for size in {inputs[i].max_shape[d] for i, d in candidates}:
        together = [(i, d) for i, d in candidates if inputs[i].max_shape[d] == size]
        if any(d not in found[i] for i, d in together):
            explore(together)
    return {value: tuple(sorted(dims)) for value, dims in found.items()}
