"""Replace a product with a constant matrix by a linear layer. Its weight is transposed once, at upload.

Without a delegate, the exporter writes a linear layer as `addmm` or `mm` with a transposed weight. A linear
kernel is faster, because the elements that it reads are neighbours in memory.
"""

from __future__ import annotations

from dataclasses import replace

from pteron.fusion.edit import Replacement, Uses, rebuild
from pteron.ir.constants import permuted_constant
from pteron.ir.values import Arg, Constant, Graph, Node, Tensor, ValueId

ADDMM, MM, LINEAR = "aten.addmm.default", "aten.mm.default", "aten.linear.default"


def fuse(graph: Graph) -> Graph:
    uses = Uses(graph)
    graph = replace(graph, values=list(graph.values))
    weights: dict[ValueId, Tensor] = {}  # the transposed weight of each matrix; products may share a matrix
    replacements: dict[int, Replacement] = {}
    for node in graph.nodes:
        found = _factors(node)
        if found is None:
            continue
        x, matrix, bias = found
        if not isinstance(matrix, Tensor) or len(matrix.max_shape) != 2:
            continue
        if isinstance(matrix.constant, Constant) and uses.is_settled(matrix):
            if matrix.id not in weights:
                weights[matrix.id] = permuted_constant(graph, matrix, (1, 0))
            args = (x, weights[matrix.id], bias, node.args[-1])
            replacements[node.index] = Replacement(LINEAR, args, (node,))
    return rebuild(graph, replacements)


def _factors(node: Node) -> tuple[Arg, Arg, Arg] | None:
    """(x, matrix, bias) of a node that computes x @ matrix + bias."""
    if node.name == MM:
        x, matrix, _ = node.args
        return x, matrix, None
    if node.name == ADDMM:
        bias, x, matrix, beta, alpha, out = node.args
        one_row = (
            isinstance(bias, Tensor) and isinstance(out, Tensor) and bias.max_shape == out.max_shape[-1:]
        )
        if one_row and beta == alpha == 1:
            return x, matrix, bias
    return None
