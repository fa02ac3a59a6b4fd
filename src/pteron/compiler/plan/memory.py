"""Where tensors are stored: aliases share a storage, and storages with disjoint lifetimes share a buffer.

WebGPU refuses a dispatch that binds one buffer for reading and for writing, even at disjoint ranges. So
values share whole buffers, not slices of an arena. A lifetime includes the node that writes a value and the
last node that reads it. A node's inputs and outputs are therefore never in one buffer, unless the node works
in place.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from pteron.compiler.ir.values import Graph, Node, Tensor, ValueId

# Kernels read and write four elements of four bytes at a time.
GRANULE = 16


def aligned(nbytes: int, to: int = GRANULE) -> int:
    return -(-max(nbytes, 1) // to) * to


@dataclass(frozen=True, slots=True)
class Layout:
    """Which tensors have the same bytes, and which alias nodes must copy instead."""

    storage: dict[ValueId, ValueId]  # tensor -> the tensor that owns its bytes
    copies: frozenset[int]  # nodes whose output may not alias their input

    @classmethod
    def of(cls, graph: Graph) -> Layout:
        storage = {tensor.id: tensor.id for tensor in graph.tensors()}
        written = _written_in_place(graph)
        copies = set()
        for node in graph.nodes:
            pair = _alias_pair(node)
            if pair is None:
                continue
            source, out = pair
            if storage[source.id] in written or out.id in written:
                copies.add(node.index)
            else:
                storage[out.id] = storage[source.id]
        return cls(storage, frozenset(copies))


def _alias_pair(node: Node) -> tuple[Tensor, Tensor] | None:
    """The (source, out) of a node whose output has the same bytes as one of its arguments."""
    if node.op.alias is None:
        return None
    source, out = node.named[node.op.alias], node.args[-1]
    if isinstance(source, Tensor) and isinstance(out, Tensor) and source.dtype == out.dtype:
        return source, out
    return None


def _written_in_place(graph: Graph) -> set[ValueId]:
    """Tensors that are written by more than their one producer: state, and tensors changed in place."""
    written = {tensor.id for tensor in graph.states}
    producers: dict[ValueId, int] = defaultdict(int)
    for node in graph.nodes:
        written.update(tensor.id for tensor in node.mutates)
        for value in node.writes:
            producers[value.id] += 1
    inputs = graph.input_ids
    written.update(i for i, count in producers.items() if count > 1 or i in inputs)
    return written


@dataclass(slots=True)
class Interval:
    storage: ValueId | tuple[int, str]  # a tensor, or a node's scratch by (node, name)
    nbytes: int
    first: int
    last: int


@dataclass(slots=True)
class MemoryPlan:
    """The sizes of the activation buffers, and the buffer of each storage."""

    buffers: list[int] = field(default_factory=list)
    placement: dict[ValueId | tuple[int, str], int] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        return sum(self.buffers)


def plan_memory(graph: Graph, layout: Layout, scratch: Iterable[tuple[int, str, int]]) -> MemoryPlan:
    """Share buffers greedily, the largest tensors first: a small tensor then fits into a large buffer."""
    intervals = lifetimes(graph, layout)
    intervals += [Interval((node, name), aligned(nbytes), node, node) for node, name, nbytes in scratch]
    intervals.sort(key=lambda i: (-i.nbytes, i.first))
    plan = MemoryPlan()
    taken: list[_Occupancy] = []
    for interval in intervals:
        index = next((i for i, buffer in enumerate(taken) if buffer.has_room(interval)), len(taken))
        if index == len(taken):
            taken.append(_Occupancy())
            plan.buffers.append(interval.nbytes)
        taken[index].add(interval)
        plan.placement[interval.storage] = index
    return plan


class _Occupancy:
    """When a buffer is in use: intervals that do not meet, by where they begin."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []

    def has_room(self, interval: Interval) -> bool:
        before = bisect_right(self._firsts, interval.last)
        return before == 0 or self._lasts[before - 1] < interval.first

    def add(self, interval: Interval) -> None:
        at = bisect_right(self._firsts, interval.first)
        self._firsts.insert(at, interval.first)
        self._lasts.insert(at, interval.last)


def lifetimes(graph: Graph, layout: Layout) -> list[Interval]:
    """The lifetime of each activation's storage, from the first node that writes it to the last reader."""
    end = len(graph.nodes)
    fixed = {layout.storage[t.id] for t in graph.tensors() if t.constant is not None}
    fixed |= {layout.storage[t.id] for t in graph.states}
    spans: dict[ValueId, Interval] = {}

    def use(tensor: object, at: int) -> None:
        if not isinstance(tensor, Tensor) or layout.storage[tensor.id] in fixed:
            return
        owner = layout.storage[tensor.id]
        span = spans.setdefault(owner, Interval(owner, 0, at, at))
        span.nbytes = max(span.nbytes, aligned(tensor.max_nbytes))
        span.first, span.last = min(span.first, at), max(span.last, at)

    for port in graph.inputs:
        use(port.value, -1)
    for node in graph.nodes:
        for value in (*node.reads, *node.writes):
            use(value, node.index)
    for tensor in graph.results:
        use(tensor, end)
    return list(spans.values())
