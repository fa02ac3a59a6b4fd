"""Norms without their second and third result (means and standard deviations), where nothing reads these."""

from __future__ import annotations

from pteron.compiler.ir.values import Graph
from pteron.compiler.passes.edit import Replacement, Uses, rebuild

WITHOUT_STATISTICS = {
    "aten.native_layer_norm.default": "pteron.layer_norm",
    "aten.native_group_norm.default": "pteron.group_norm",
}


def fuse(graph: Graph) -> Graph:
    uses = Uses(graph)
    replacements: dict[int, Replacement] = {}
    for node in graph.nodes:
        name = WITHOUT_STATISTICS.get(node.name)
        if name is None:
            continue
        outs = node.args[-1]
        if not any(uses.readers[t.id] or uses.is_output(t) for t in outs[1:]):
            replacements[node.index] = Replacement(name, (*node.args[:-1], outs[0]), (node,))
    return rebuild(graph, replacements)
