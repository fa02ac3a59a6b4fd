"""Split a linear layer or a convolution whose weight is too large for one binding into several layers.

An example is the first fully connected layer of VGG: 411 MB. timm writes it as a convolution. The parts of
the weight are regions of the file, so nothing is copied. The results are the same: each output column, or
channel, depends on one row of the weight.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pteron.compiler.ir.constants import can_take_rows, constant_rows
from pteron.compiler.ir.values import Arg, Graph, Node, Tensor
from pteron.compiler.passes.edit import Replacement, rebuild

# Every WebGPU device can bind a buffer of this size.
LARGEST_NBYTES = 128 << 20

# Of each operator: the arguments whose first dimension is the output columns. The weight comes first.
BY_COLUMN = {
    "aten.convolution.default": ("weight", "bias"),
    "et_vk.conv_with_clamp.default": ("weight", "bias"),
    "aten.linear.default": ("weight", "bias"),
    "pteron.linear_affine.default": ("weights", "scales", "bias"),
    "pteron.linear_int8": ("weights", "scales", "zeros", "bias"),
}


def fuse(graph: Graph) -> Graph:
    graph = replace(graph, values=list(graph.values))
    large = [node for node in graph.nodes if _is_too_large(node)]
    return rebuild(graph, {node.index: list(_parts(graph, node)) for node in large})


def is_larger(weight: Tensor) -> bool:
    """Whether a weight is too large for one binding."""
    return weight.max_nbytes > LARGEST_NBYTES


def part_rows(weight: Tensor) -> list[range]:
    """The rows of each part of a weight. Kernels compute four columns at a time."""
    rows, count = weight.max_shape[0], -(-weight.max_nbytes // LARGEST_NBYTES)
    step = -(-rows // (4 * count)) * 4
    return [range(first, min(first + step, rows)) for first in range(0, rows, step)]


def _is_too_large(node: Node) -> bool:
    constants = _by_column(node)
    if not constants or not is_larger(constants[0]):
        return False
    if _is_convolution(node) and (_arg(node, "transposed") or _arg(node, "groups") != 1):
        return False  # the first dimension is not the output channels, or a part would need a part of x
    columns = constants[0].max_shape[:1]
    return all(can_take_rows(tensor) and tensor.max_shape[:1] == columns for tensor in constants)


def _by_column(node: Node) -> list[Tensor]:
    args = (_arg(node, name) for name in BY_COLUMN.get(node.name, ()))
    return [arg for arg in args if isinstance(arg, Tensor)]


def _is_convolution(node: Node) -> bool:
    return "groups" in node.op.parameters


def _arg(node: Node, name: str) -> Arg:
    return node.args[node.op.parameters.index(name)]


def _parts(graph: Graph, node: Node) -> Iterator[Replacement]:
    """A layer for each part of the columns, and the concatenation of their outputs."""
    *read, out = node.args
    assert isinstance(out, Tensor)
    constants = _by_column(node)
    dim = 1 if _is_convolution(node) else len(out.max_shape) - 1
    outs: list[Arg] = []
    for rows in part_rows(constants[0]):
        part = {t.id: constant_rows(graph, t, rows) for t in constants}
        args = [part.get(arg.id, arg) if isinstance(arg, Tensor) else arg for arg in read]
        shape = (*out.max_shape[:dim], len(rows), *out.max_shape[dim + 1 :])
        outs.append(graph.tensor(out.dtype, shape, f"{out.name}.{rows.start}"))
        yield Replacement(node.name, (*args, outs[-1]), (node,))
    yield Replacement("aten.cat.default", (tuple(outs), dim, out), (node,))
