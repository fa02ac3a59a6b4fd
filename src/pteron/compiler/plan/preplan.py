"""Plan the smallest sizes of a small program at load: else planning would be most of a first call."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from pteron.compiler.ir.live import Live
from pteron.compiler.ir.sizes import Size, Sizes, varying
from pteron.compiler.ir.values import ValueId
from pteron.compiler.plan.sweep import LiveGraph
from pteron.errors import InputError

PREPLANNED_NODES = 128  # to plan a node takes about a tenth of a millisecond


def preplan(live: LiveGraph, inputs: Mapping[ValueId, Sizes]) -> None:
    """Plan a graph at the smallest sizes of its inputs, the fewer the more nodes it has.

    If sizes have different ranges, they vary independently: then there are too many combinations, and none is
    planned.
    """
    dynamic = {value: sizes for value, sizes in inputs.items() if varying(sizes)}
    ranges = {size.of.values for sizes in dynamic.values() for size in sizes if isinstance(size, Size)}
    if len(ranges) != 1:
        return
    smaller = ranges.pop()[:-1]
    for value in smaller[smaller.start == 0 :][: PREPLANNED_NODES // max(1, len(live.graph.nodes))]:
        changes: dict[ValueId, Live] = {
            tensor: tuple(size.where(value) if isinstance(size, Size) else size for size in sizes)
            for tensor, sizes in dynamic.items()
        }
        with suppress(InputError):  # some programs refuse some sizes
            live.preview(changes)
