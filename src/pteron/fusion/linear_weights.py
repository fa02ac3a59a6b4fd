"""A product with a constant matrix becomes a linear layer, whose weight is transposed once, at upload.

A linear kernel reads its weight along the depth, which is how memory likes to be read.
"""

from __future__ import annotations

from dataclasses import replace

from pteron.fusion.edit import Replacement, Uses, rebuild
from pteron.ir.constants import permuted_constant
from pteron.ir.values import Constant, Graph, Tensor

MM, LINEAR = "aten.mm.default", "aten.linear.default"


def fuse(graph: Graph) -> Graph:
    uses = Uses(graph)
    graph = replace(graph, values=list(graph.values))
    replacements: dict[int, Replacement] = {}
    for node in graph.nodes:
        if node.name != MM or node.when is not None:
            continue
        x, matrix, out = node.args
        if isinstance(matrix, Tensor) and isinstance(matrix.constant, Constant) and uses.is_settled(matrix):
            weight = permuted_constant(graph, matrix, (1, 0))
            replacements[node.index] = Replacement(LINEAR, (x, weight, None, out), (node,))
    return rebuild(graph, replacements)
