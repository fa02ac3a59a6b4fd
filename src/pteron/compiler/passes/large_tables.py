"""Split a table of embeddings that is too large for one binding.

An example is a vocabulary of 262,144 tokens of 1,152 elements: 151 MB in four bits. A row is looked up in
every part, and the right one is chosen. A table that is also the weight of the last layer has the same parts
there (large_weights.py), so each is stored once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pteron.compiler.ir.constants import can_take_rows, constant_rows
from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ir.values import Arg, Graph, Node, Tensor
from pteron.compiler.passes.edit import Replacement, rebuild
from pteron.compiler.passes.large_weights import is_larger, part_rows

# Of each operator: the arguments whose first dimension is the rows of the table. The weight comes first.
BY_ROW = {
    "aten.embedding.default": ("weight",),
    "pteron.embedding_affine.default": ("weights", "scales"),
    "pteron.embedding_int8": ("weights", "scales", "zeros"),
    "et_vk.embedding_q4gsw.default": ("weight", "scales"),
}


def fuse(graph: Graph) -> Graph:
    graph = replace(graph, values=list(graph.values))
    large = [node for node in graph.nodes if _is_too_large(node)]
    return rebuild(graph, {node.index: list(_parts(graph, node)) for node in large})


def _is_too_large(node: Node) -> bool:
    constants = _by_row(node)
    if not constants or not is_larger(constants[0]):
        return False
    rows = constants[0].max_shape[:1]
    return all(can_take_rows(tensor) and tensor.max_shape[:1] == rows for tensor in constants)


def _by_row(node: Node) -> list[Tensor]:
    args = (_arg(node, name) for name in BY_ROW.get(node.name, ()))
    return [arg for arg in args if isinstance(arg, Tensor)]


def _arg(node: Node, name: str) -> Arg:
    return node.args[node.op.parameters.index(name)]


def _parts(graph: Graph, node: Node) -> Iterator[Replacement]:
    *read, out = node.args
    indices, constants = _arg(node, "indices"), _by_row(node)
    assert isinstance(out, Tensor) and isinstance(indices, Tensor)
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
