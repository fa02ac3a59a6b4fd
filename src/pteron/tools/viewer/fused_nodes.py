"""Which nodes of the file became a node of the fused graph."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from pteron.compiler.ir.values import Graph, Node, ValueId


class FusedNodes:
    """The nodes of the unfused graph that each node of the fused graph stands for.

    A pass names the nodes that it replaces. Some nodes are gone because nothing reads their results any more,
    such as the transpositions before an attention. They belong to the node that replaced their readers.
    """

    def __init__(self, graph: Graph, unfused: Graph) -> None:
        self._originals: dict[int, list[Node]] = defaultdict(list)
        owner: dict[ValueId, int] = {}  # a written value -> the node of the fused graph that computes it now
        for node in graph.nodes:
            for source in _sources(node):
                owner.update((value.id, node.index) for value in (*source.writes, *source.mutates))
        readers: dict[ValueId, int] = {}
        for old in reversed(unfused.nodes):
            written = [value.id for value in (*old.writes, *old.mutates)]
            mine = next((known[i] for known in (owner, readers) for i in written if i in known), None)
            if mine is not None:
                self._originals[mine].insert(0, old)
                readers.update((value.id, mine) for value in old.reads)

    def originals(self, node: Node) -> list[Node]:
        """In program order. A node that no pass replaced stands for itself."""
        return self._originals[node.index]

    def sources(self, node: Node) -> list[Node]:
        """What was fused into a node. Empty if it is as it was in the file."""
        return self._originals[node.index] if node.replaces else []


def _sources(node: Node) -> Iterator[Node]:
    """The nodes of the file in a fused node. A pass may replace nodes of an earlier pass."""
    if node.replaces:
        for replaced in node.replaces:
            yield from _sources(replaced)
    else:
        yield node
