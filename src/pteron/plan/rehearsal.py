"""Plan the smallest sizes of a small program at load: else planning would be most of a first call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from pteron.errors import InputError
from pteron.ir.live import Live
from pteron.ir.values import Tensor, ValueId
from pteron.plan.sweep import LiveGraph

REHEARSED_NODES = 128  # to plan a node takes about a tenth of a millisecond


def rehearse(live: LiveGraph, dims: Mapping[ValueId, Sequence[int]]) -> None:
    """Plan a graph at the sizes 1, 2, 3, ... of its dynamic dimensions, the fewer the more nodes it has.

    dims: the dynamic dimensions of each input. If they have different maxima, they vary independently: then
        there are too many combinations, and none is planned.
    """
    inputs = [v for v in live.graph.values if isinstance(v, Tensor) and v.id in live.graph.input_ids]
    dynamic = [tensor for tensor in inputs if dims.get(tensor.id)]
    maxima = {tensor.max_shape[d] for tensor in dynamic for d in dims[tensor.id]}
    if len(maxima) != 1:
        return
    sizes = REHEARSED_NODES // max(1, len(live.graph.nodes))
    for size in range(1, min(maxima.pop(), 1 + sizes)):
        changes: dict[ValueId, Live] = {
            tensor.id: tuple(size if d in dims[tensor.id] else n for d, n in enumerate(tensor.max_shape))
            for tensor in dynamic
        }
        with suppress(InputError):  # some programs refuse some sizes
            live.preview(changes)
