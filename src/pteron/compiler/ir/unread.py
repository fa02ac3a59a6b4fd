"""Leave out nodes whose results nothing reads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pteron.compiler.ir.values import Graph, Node, SymInt, Tensor, Value


def without_unread(graph: Graph, among: Iterable[Value] | None = None) -> Graph:
    """The graph without the nodes that write only values that nothing reads, out of the values in `among`.

    A node that changes a tensor in place stays: what it writes is read in a later call.
    """
    candidates = {value.id for value in (graph.values if among is None else among)}
    needed = {port.value.id for port in graph.outputs if isinstance(port.value, (Tensor, SymInt))}
    needed |= {count.id for count in graph.counts.values()}
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        ids = {value.id for value in node.writes}
        if not node.mutates and ids <= candidates and not ids & needed:
            continue
        needed.update(value.id for value in (*node.reads, *([node.when] if node.when else [])))
        kept.append(node)
    return replace(graph, nodes=[replace(node, index=n) for n, node in enumerate(reversed(kept))])
