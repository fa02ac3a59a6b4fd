"""Replace a product with a constant matrix by a linear layer. Its weight is transposed once, at upload.

Without a delegate, the exporter writes a linear layer as `addmm` or `mm` with a transposed weight. After
attention it writes a `bmm` with a copy of the weight for every batch. A linear kernel is faster, because the
elements that it reads are neighbours in memory, and all batches read the same weight.
"""

from __future__ import annotations

from dataclasses import dataclass

from pteron.compiler.ir.constants import permutation, permuted_constant
from pteron.compiler.ir.unread import without_unread
from pteron.compiler.ir.values import Arg, Constant, Graph, Node, Tensor, ValueId
from pteron.compiler.passes.edit import Replacement, Uses, growable, rebuild

ADDMM, MM, BMM, LINEAR = (f"aten.{name}.default" for name in ("addmm", "mm", "bmm", "linear"))
EXPAND, PERMUTE = "aten.expand_copy.default", "aten.permute_copy.default"


def fuse(graph: Graph) -> Graph:
    uses = Uses(graph)
    edited = growable(graph)
    weights: dict[ValueId, Tensor] = {}  # the transposed weight of each matrix; products may share a matrix
    replacements: dict[int, Replacement] = {}
    copies: list[Tensor] = []
    for node in graph.nodes:
        found = _factors(node)
        if found is None:
            continue
        x, matrix, bias = found
        copied = _copied_constant(matrix, uses)
        if copied is None:
            continue
        weight = copied.constant
        if not copied.transposed:
            if weight.id not in weights:
                weights[weight.id] = permuted_constant(edited, weight, (1, 0))
            weight = weights[weight.id]
        replacements[node.index] = Replacement(LINEAR, (x, weight, bias, node.args[-1]), (node,))
        copies += copied.copies
    return without_unread(rebuild(edited, replacements), copies)


def _factors(node: Node) -> tuple[Arg, Arg, Arg] | None:
    """(x, matrix, bias) of a node that computes x @ matrix + bias."""
    if node.name in (MM, BMM):
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


@dataclass(frozen=True, slots=True)
class CopiedConstant:
    """A constant matrix, whether its copy is transposed, and all copies on the way."""

    constant: Tensor
    transposed: bool
    copies: list[Tensor]


def _copied_constant(matrix: Arg, uses: Uses) -> CopiedConstant | None:
    """The constant that every matrix of a tensor is a copy of."""
    transposed = False
    copies: list[Tensor] = []
    while isinstance(matrix, Tensor) and uses.is_settled(matrix):
        if isinstance(matrix.constant, Constant):
            return CopiedConstant(matrix, transposed, copies) if _rank(matrix) == 2 else None
        node = uses.writer.get(matrix.id)
        if node is None or node.when is not None:
            return None
        source = node.args[0]
        if not isinstance(source, Tensor) or source.dtype is not matrix.dtype:
            return None
        if node.name == PERMUTE and permutation(source, node.args[1]) == (1, 0):
            transposed = not transposed
        elif not (node.name == EXPAND or node.op.alias) or source.max_shape[-2:] != matrix.max_shape[-2:]:
            return None
        copies.append(matrix)
        matrix = source
    return None


def _rank(tensor: Tensor) -> int:
    return len(tensor.max_shape)
