"""Groups of nodes that a reader may fold: the modules of the model, or else repeated blocks.

If constants have qualified names (`layers.3.attention.wq.weight`), a node belongs to the module of the
constants that it reads. Most files have no such names. Then runs of equal blocks are found in program order:
thirty equal layers become thirty groups within one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile
from typing import Any

import numpy as np

from pteron.compiler.ir.values import Constant, Graph, Node, Tensor

SHORTEST_BLOCK = 3
LONGEST_BLOCK = 2000
MOST_TOGETHER = 80  # nodes that are shown in one group, if they can be divided

ModulePath = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """A group within another group, or at the top (`parent` is None)."""

    name: str
    parent: int | None


@dataclass(slots=True)
class Grouping:
    """All groups, each after its parent, and the group of each node."""

    groups: list[NodeGroup]
    of_node: list[int | None]

    def add(self, name: str, parent: int | None) -> int:
        self.groups.append(NodeGroup(name, parent))
        return len(self.groups) - 1


def group_nodes(graph: Graph) -> Grouping:
    """By module if the names of constants tell it, else by repeated blocks."""
    paths = [_module(node) for node in graph.nodes]
    named = [path for path in paths if path]
    readers = sum(any(_constants(node)) for node in graph.nodes)
    if named and len(named) * 2 >= readers:
        return _by_module(_complete(paths))
    return _by_repeats(graph.nodes)


# -- by the names of constants -----------------------------------------------------------------------


def _constants(node: Node) -> Iterator[Tensor]:
    for value in (*node.reads, *node.mutates):
        if isinstance(value, Tensor) and value.constant is not None:
            yield from (value,) if isinstance(value.constant, Constant) else value.constant.parts


def _module(node: Node) -> ModulePath:
    """The innermost module that has all named constants of a node."""
    names = [constant.name.split(".")[:-1] for constant in _constants(node) if _is_qualified(constant.name)]
    return _common(names) if names else ()


def _common(paths: Sequence[Sequence[str]]) -> ModulePath:
    """The longest beginning that all paths share."""
    steps = takewhile(lambda step: len(set(step)) == 1, zip(*paths, strict=False))
    return tuple(step[0] for step in steps)


def _is_qualified(name: str) -> bool:
    return "." in name and " " not in name


def _complete(paths: Sequence[ModulePath]) -> list[ModulePath]:
    """Give a node without a name the module that the named nodes before and after it have in common."""
    after: list[ModulePath] = []
    following: ModulePath = ()
    for path in reversed(paths):
        following = path or following
        after.append(following)
    before: ModulePath = ()
    completed = []
    for path, following in zip(paths, reversed(after), strict=True):
        before = path or before
        completed.append(path or _common([before, following]))
    return completed


def _by_module(paths: Sequence[ModulePath]) -> Grouping:
    """One group per module. `layers.3` is one step: a group of nothing but layers would say nothing."""
    paths = [_steps(path) for path in paths]
    sizes: dict[ModulePath, int] = {}
    for path in paths:
        for length in range(1, len(path) + 1):
            sizes[path[:length]] = sizes.get(path[:length], 0) + 1
    grouping = Grouping([], [])
    known: dict[ModulePath, int] = {}
    for path in paths:
        parent: int | None = None
        for length in range(1, len(path) + 1):
            prefix = path[:length]
            if sizes[prefix] == 1:  # a group of one node
                break
            if prefix not in known:
                known[prefix] = grouping.add(path[length - 1], parent)
            parent = known[prefix]
        grouping.of_node.append(parent)
    return grouping


def _steps(path: ModulePath) -> ModulePath:
    steps: list[str] = []
    for part in path:
        if part.isdecimal() and steps:
            steps[-1] += f".{part}"
        else:
            steps.append(part)
    return tuple(steps)


# -- by repeated blocks --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BlockRun:
    """Equal blocks, one after another."""

    first: int
    length: int  # of a block
    count: int

    @property
    def nodes(self) -> int:
        return self.length * self.count


def _by_repeats(nodes: Sequence[Node]) -> Grouping:
    forms: dict[Any, int] = {}
    numbers = np.array([forms.setdefault(_form(node), len(forms)) for node in nodes], np.int64)
    grouping = Grouping([], [None] * len(nodes))
    _group_range(grouping, numbers, 0, len(nodes), None)
    return grouping


def _form(node: Node) -> tuple[Any, ...]:
    """What equal nodes of two blocks have in common."""
    tensors = (value for value in (*node.reads, *node.writes) if isinstance(value, Tensor))
    return (node.name, *((t.dtype, t.max_shape) for t in tensors))


def _group_range(
    grouping: Grouping, numbers: np.ndarray[Any, Any], begin: int, end: int, parent: int | None
) -> None:
    """Group the longest run in a range, then what is before it and after it."""
    for node in range(begin, end):
        grouping.of_node[node] = parent
    run = _longest_run(numbers[begin:end])
    if run is None:
        if end - begin > MOST_TOGETHER:
            _divide(grouping, begin, end, parent)
        return
    first, last = begin + run.first, begin + run.first + run.nodes
    whole = grouping.add(f"{run.count} equal blocks", parent)
    for number, start in enumerate(range(first, last, run.length)):
        block = grouping.add(f"block {number + 1} of {run.count}", whole)
        _group_range(grouping, numbers, start, start + run.length, block)
    _group_range(grouping, numbers, begin, first, parent)
    _group_range(grouping, numbers, last, end, parent)


def _divide(grouping: Grouping, begin: int, end: int, parent: int | None) -> None:
    """Equal parts of a long stretch in which nothing is repeated."""
    parts = -(-(end - begin) // MOST_TOGETHER)
    length = -(-(end - begin) // parts)
    for first in range(begin, end, length):
        last = min(first + length, end)
        part = grouping.add(f"operators {first} to {last - 1}", parent)
        for node in range(first, last):
            grouping.of_node[node] = part


def _longest_run(numbers: np.ndarray[Any, Any]) -> BlockRun | None:
    """The run that has the most nodes. Of equally long runs, the one with the shortest blocks."""
    best: BlockRun | None = None
    for length in range(SHORTEST_BLOCK, min(LONGEST_BLOCK, len(numbers) // 2) + 1):
        for run in _runs(numbers, length):
            if best is None or run.nodes > best.nodes:
                best = run
    return best


def _runs(numbers: np.ndarray[Any, Any], length: int) -> Iterator[BlockRun]:
    """The runs of blocks of one length: stretches in which each node equals the one a block later."""
    equal = np.concatenate(([False], numbers[:-length] == numbers[length:], [False]))
    edges = np.flatnonzero(equal[1:] != equal[:-1])
    for first, last in pairwise(edges.tolist()):
        if equal[first + 1] and last - first >= length:
            count = (last - first) // length + 1
            if len(set(numbers[first : first + length].tolist())) > 1:
                yield BlockRun(first, length, count)
