"""Split a linear layer or a convolution whose weight is too large for one binding into several layers.

An example is the first fully connected layer of VGG: 411 MB. timm writes it as a convolution. The parts of
the weight are regions of the file, so nothing is copied. The results are the same: each output column, or
channel, depends on one row of the weight.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pteron.compiler.ir.constants import can_take_rows, constant_rows
from pteron.compiler.ir.values import Arg, Graph, Node, Tensor
from pteron.compiler.passes.edit import Replacement, growable, rebuild

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
    graph = growable(graph)
    large = [(node, constants) for node in graph.nodes if (constants := _constants(node))]
    return rebuild(graph, {node.index: list(_parts(graph, node, constants)) for node, constants in large})


def part_rows(weight: Tensor) -> list[range]:
    """The rows of each part of a weight. Kernels compute four columns at a time."""
    rows, count = weight.max_shape[0], -(-weight.max_nbytes // LARGEST_NBYTES)
    step = -(-rows // (4 * count)) * 4
    return [range(first, min(first + step, rows)) for first in range(0, rows, step)]


def too_large(node: Node, names: Mapping[str, Sequence[str]]) -> list[Tensor]:
    """The named constants of a node, by its operator, if the first is too large and all can be split by rows.

    Else an empty list.
    """
    args = [node.named[name] for name in names.get(node.name, ())]
    constants = [arg for arg in args if isinstance(arg, Tensor)]
    if not constants or constants[0].max_nbytes <= LARGEST_NBYTES:
        return []
    rows = constants[0].max_shape[:1]
    splits = all(can_take_rows(tensor) and tensor.max_shape[:1] == rows for tensor in constants)
    return constants if splits else []


def _constants(node: Node) -> list[Tensor]:
    if _is_convolution(node) and (node.named["transposed"] or node.named["groups"] != 1):
        return []  # the first dimension is not the output channels, or a part would need a part of x
    return too_large(node, BY_COLUMN)


def _is_convolution(node: Node) -> bool:
    return node.name in BY_COLUMN and "groups" in node.op.parameters


def _parts(graph: Graph, node: Node, constants: list[Tensor]) -> Iterator[Replacement]:
    """A layer for each part of the columns, and the concatenation of their outputs."""
    *read, out = node.args
    dim = 1 if _is_convolution(node) else len(out.max_shape) - 1
    outs: list[Arg] = []
    for rows in part_rows(constants[0]):
        part = {t.id: constant_rows(graph, t, rows) for t in constants}
        args = [part.get(arg.id, arg) if isinstance(arg, Tensor) else arg for arg in read]
        shape = (*out.max_shape[:dim], len(rows), *out.max_shape[dim + 1 :])
        outs.append(graph.tensor(out.dtype, shape, f"{out.name}.{rows.start}"))
        yield Replacement(node.name, (*args, outs[-1]), (node,))
    yield Replacement("aten.cat.default", (tuple(outs), dim, out), (node,))
