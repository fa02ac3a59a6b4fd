"""Split a linear layer whose weight is too large for one binding into several layers.

An example is the first fully connected layer of VGG: 411 MB. The parts of the weight are regions of the file,
so nothing is copied. The results are the same: each output column depends on one row of the weight.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pteron.fusion.edit import Replacement, rebuild
from pteron.ir.constants import can_take_rows, constant_rows
from pteron.ir.values import Arg, Graph, Node, Tensor

# Every WebGPU device can bind a buffer of this size.
LARGEST_NBYTES = 128 << 20

# Of each operator: the arguments whose first dimension is the output columns. The weight comes first.
BY_COLUMN = {
    "aten.linear.default": ("weight", "bias"),
    "pteron.linear_affine.default": ("weights", "scales", "bias"),
    "pteron.linear_int8": ("weights", "scales", "zeros", "bias"),
}


def fuse(graph: Graph) -> Graph:
    graph = replace(graph, values=list(graph.values))
    large = [node for node in graph.nodes if _is_too_large(node)]
    return rebuild(graph, {node.index: list(_parts(graph, node)) for node in large})


def _is_too_large(node: Node) -> bool:
    constants = _by_column(node)
    if not constants or constants[0].max_nbytes <= LARGEST_NBYTES:
        return False
    columns = constants[0].max_shape[:1]
    return all(can_take_rows(tensor) and tensor.max_shape[:1] == columns for tensor in constants)


def _by_column(node: Node) -> list[Tensor]:
    names = BY_COLUMN.get(node.name, ())
    args = (node.args[node.op.parameters.index(name)] for name in names)
    return [arg for arg in args if isinstance(arg, Tensor)]


def _parts(graph: Graph, node: Node) -> Iterator[Replacement]:
    """A linear layer for each part of the columns, and the concatenation of their outputs."""
    *read, out = node.args
    assert isinstance(out, Tensor)
    constants = _by_column(node)
    columns = constants[0].max_shape[0]
    count = -(-constants[0].max_nbytes // LARGEST_NBYTES)
    step = -(-columns // (4 * count)) * 4  # kernels compute four columns at a time
    outs: list[Arg] = []
    for first in range(0, columns, step):
        rows = range(first, min(first + step, columns))
        part = {t.id: constant_rows(graph, t, rows) for t in constants}
        args = [part.get(arg.id, arg) if isinstance(arg, Tensor) else arg for arg in read]
        outs.append(graph.tensor(out.dtype, (*out.max_shape[:-1], len(rows)), f"{out.name}.{first}"))
        yield Replacement(node.name, (*args, outs[-1]), (node,))
    yield Replacement("aten.cat.default", (tuple(outs), -1, out), (node,))
