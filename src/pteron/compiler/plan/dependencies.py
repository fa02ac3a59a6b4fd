"""What a node depends on: the values that its plan is made from, and the integers that its kernels read."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pteron.compiler.ir.values import Graph, Node, SymInt, ValueId, values_in


def planning_values(node: Node) -> tuple[ValueId, ...]:
    """The values that a plan depends on: all that the node reads, except SymInts that kernels read."""
    ids = {} if node.when is None else {node.when.id: None}
    for name, arg in zip(node.op.parameters[:-1], node.args[:-1], strict=True):
        for value in values_in(arg):
            if not (isinstance(value, SymInt) and name in node.op.uniforms):
                ids[value.id] = None
    return tuple(ids)


def kernel_integers(graph: Graph) -> frozenset[ValueId]:
    """The SymInts that kernels read themselves."""
    return frozenset(
        value.id
        for node in graph.nodes
        for name, arg in node.named.items()
        if name in node.op.uniforms
        for value in values_in(arg)
    )


def consumers(graph: Graph, keys: Sequence[Collection[ValueId]]) -> list[tuple[int, ...]]:
    """For each value, the nodes whose plans depend on it."""
    found: list[list[int]] = [[] for _ in graph.values]
    for node in graph.nodes:
        for value in keys[node.index]:
            found[value].append(node.index)
    return [tuple(nodes) for nodes in found]


def watchers(graph: Graph, keys: Sequence[Collection[ValueId]]) -> dict[ValueId, tuple[int, ...]]:
    """For each SymInt, the nodes that only pass it to their kernels. Their plans may limit its range."""
    found: dict[ValueId, list[int]] = {}
    for node in graph.nodes:
        for value in dict.fromkeys(node.reads):
            if isinstance(value, SymInt) and value.id not in keys[node.index]:
                found.setdefault(value.id, []).append(node.index)
    return {value: tuple(nodes) for value, nodes in found.items()}
