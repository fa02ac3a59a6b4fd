"""Split a table of embeddings that is too large for one binding.

An example is a vocabulary of 262,144 tokens of 1,152 elements: 151 MB in four bits. A row is looked up in
every part, and the right one is chosen. A table that is also the weight of the last layer has the same parts
there (large_weights.py), so each is stored once.
"""

from __future__ import annotations

from collections.abc import Iterator

from pteron.compiler.ir.constants import constant_rows
from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ir.values import Graph, Node, Tensor
from pteron.compiler.passes.edit import Replacement, growable, rebuild
from pteron.compiler.passes.large_weights import part_rows, too_large

# Of each operator: the arguments whose first dimension is the rows of the table. The weight comes first.
BY_ROW = {
    "aten.embedding.default": ("weight",),
    "pteron.embedding_affine.default": ("weights", "scales"),
    "pteron.embedding_int8": ("weights", "scales", "zeros"),
    "et_vk.embedding_q4gsw.default": ("weight", "scales"),
}


def fuse(graph: Graph) -> Graph:
    graph = growable(graph)
    large = [(node, constants) for node in graph.nodes if (constants := too_large(node, BY_ROW))]
    return rebuild(graph, {node.index: list(_parts(graph, node, constants)) for node, constants in large})


def _parts(graph: Graph, node: Node, constants: list[Tensor]) -> Iterator[Replacement]:
    *read, out = node.args
    indices = node.named["indices"]
    parts = part_rows(constants[0])
    before: Tensor | None = None  # the rows of the parts so far
    for rows in parts:
        swapped = {t.id: constant_rows(graph, t, rows) for t in constants}
        place = graph.tensor(indices.dtype, indices.max_shape, f"{indices.name} from {rows.start}")
        swapped[indices.id] = place
        found = graph.tensor(out.dtype, out.max_shape, f"{out.name}.{rows.start}")
        args = [swapped.get(arg.id, arg) if isinstance(arg, Tensor) else arg for arg in read]
        yield Replacement(
            "pteron.part_index", (indices, rows.start, len(rows), parts[-1].stop, place), (node,)
        )
        yield Replacement(node.name, (*args, found), (node,))
        if before is not None:
            is_before = graph.tensor(DType.bool, indices.max_shape, f"{indices.name} < {rows.start}")
            column = graph.tensor(DType.bool, (*indices.max_shape, 1), is_before.name)
            both = out if rows is parts[-1] else graph.tensor(out.dtype, out.max_shape, f"{found.name}.all")
            yield Replacement("aten.lt.Scalar", (indices, rows.start, is_before), (node,))
            yield Replacement("aten.unsqueeze_copy.default", (is_before, -1, column), (node,))
            yield Replacement("aten.where.self", (column, before, found, both), (node,))
            found = both
        before = found
