"""KV caches that a program copies to a wider float type before attention reads them.

A float16 program does so in every layer and every call, because ExecuTorch's attention takes one type.
Pteron's attention reads a cache of any float type, and computes in float32.
"""

from __future__ import annotations

from dataclasses import replace

from pteron.compiler.ir.values import Graph, Node, Tensor, ValueId
from pteron.compiler.lower.builder import CAST

COPIES = ("aten._to_copy.default", CAST)
ATTENTION = {"custom_sdpa.default": ("k", "v")}


def without_cache_copies(graph: Graph) -> Graph:
    """The graph in which attention reads the caches themselves. Copies that nothing else reads are gone."""
    states = {tensor.id for tensor in graph.states}
    copies: dict[ValueId, Tensor] = {}  # of caches as they are at this node
    nodes: list[Node] = []
    for node in graph.nodes:
        changed = {value.id for value in (*node.writes, *node.mutates)}
        copies = {id: cache for id, cache in copies.items() if cache.id not in changed and id not in changed}
        cache = _widened(node)
        if cache is not None and cache.id in states:
            copies[node.writes[0].id] = cache
        elif node.name in ATTENTION:
            node = _with_caches(node, copies)
        nodes.append(node)
    return _without_unread_copies(graph, nodes) if nodes != graph.nodes else graph


def _widened(node: Node) -> Tensor | None:
    """What a node copies to a wider float type."""
    if node.name not in COPIES:
        return None
    x, y = node.args[0], node.args[-1]
    assert isinstance(x, Tensor) and isinstance(y, Tensor)
    is_wider = x.dtype.is_float and y.dtype.is_float and x.dtype.itemsize < y.dtype.itemsize
    return x if is_wider else None


def _with_caches(node: Node, copies: dict[ValueId, Tensor]) -> Node:
    names = ATTENTION[node.name]
    args = tuple(
        copies.get(arg.id, arg) if name in names and isinstance(arg, Tensor) else arg
        for name, arg in zip(node.op.parameters, node.args, strict=True)
    )
    return node.op.node(args, node.origin, index=node.index, when=node.when)


def _without_unread_copies(graph: Graph, nodes: list[Node]) -> Graph:
    needed = {tensor.id for tensor in graph.results} | {value.id for node in nodes for value in node.reads}
    kept = [node for node in nodes if node.name not in COPIES or any(v.id in needed for v in node.writes)]
    return replace(graph, nodes=[replace(node, index=index) for index, node in enumerate(kept)])
