"""Interleave the coded weights of four neighbouring columns of a linear layer, part by part.

A part is 16 codes of a column. An invocation that computes four columns then reads its weights in the order
of memory, and with fewer loads. This is for drivers that run shaders on the CPU. The kernels for GPUs read
each column by itself. The bytes of the file are permuted at upload.

An embedding table that is also the weight of the last layer is interleaved for both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import replace

from pteron.compiler.ir.constants import can_take_rows, permuted_constant
from pteron.compiler.ir.values import Constant, Graph, Joined, Node, Shape, Tensor
from pteron.compiler.ops.affine import INTERLEAVED
from pteron.compiler.passes.edit import Replacement, growable, rebuild

Q4 = ("et_vk.linear_q4gsw.default", "pteron.linears_q4gsw")
LINEARS = ("pteron.linear_affine.default", "pteron.linears_affine", *Q4)
EMBEDDING = "pteron.embedding_affine.default"
PART = 16  # codes
COLUMNS = 4


def fuse(graph: Graph) -> Graph:
    graph = growable(graph)
    readers: dict[Hashable, list[Node]] = defaultdict(list)
    for node in graph.nodes:
        for value in dict.fromkeys(node.reads):
            if isinstance(value, Tensor) and value.constant is not None:
                readers[_bytes_of(value)].append(node)
    replacements: dict[int, Replacement] = {}
    for linear in graph.nodes:
        if linear.index in replacements or linear.name not in LINEARS or not _suits(linear):
            continue
        weights = _weights(linear)
        # A weight that another operator reads, too, would be stored twice.
        nodes = readers[_bytes_of(weights)]
        if all(_suits(node) and _form(node) == _form(linear) for node in nodes):
            interleaved = _interleaved(graph, weights, _elements(linear, PART))
            for node in nodes:
                args = tuple(interleaved if arg is _weights(node) else arg for arg in node.args)
                replacements[node.index] = Replacement(node.name, args, (node,))
    return rebuild(graph, replacements)


def _bytes_of(tensor: Tensor) -> Hashable:
    """A key: several tensors may have the same bytes of the file."""
    constant = tensor.constant
    return constant.data if isinstance(constant, Constant) else constant


def _weights(node: Node) -> Tensor:
    weights: Tensor = node.named["weights"]
    return weights


def _bits(node: Node) -> int:
    bits: int = 4 if node.name in Q4 else node.named["bits"]
    return bits


def _elements(node: Node, codes: int) -> int:
    """The bytes or words that codes take."""
    return codes * _bits(node) // 8 // _weights(node).dtype.itemsize


def _form(node: Node) -> tuple[int, Shape]:
    return _bits(node), _weights(node).max_shape


def _suits(node: Node) -> bool:
    """Whether kernels can read the weights interleaved: codes of one plane, and whole pairs of parts."""
    if node.name not in (*LINEARS, EMBEDDING) or _bits(node) not in (4, 8):
        return False
    if node.named.get("table") is not None:
        return False
    row = node.args[-1] if node.name == EMBEDDING else node.args[0]
    group = node.named["group_size"]
    depth = row.max_shape[-1] if row.max_shape else 0
    whole = group > 0 and group % (2 * PART) == 0 and depth > 0 and depth % group == 0
    weights = _weights(node)
    return whole and weights.max_shape[1:] == (_elements(node, depth),) and _has_whole_columns(weights)


def _has_whole_columns(weights: Tensor) -> bool:
    constant = weights.constant
    if isinstance(constant, Joined):
        return constant.axis == 0 and all(map(_has_whole_columns, constant.parts))
    return can_take_rows(weights) and weights.max_shape[0] % COLUMNS == 0


def _interleaved(graph: Graph, weights: Tensor, part: int) -> Tensor:
    """[columns, elements of a row] as [columns / 4, parts, 4, elements of a part]."""
    constant = weights.constant
    if isinstance(constant, Joined):
        parts = tuple(_interleaved(graph, each, part) for each in constant.parts)
        shape = (sum(part.max_shape[0] for part in parts), *parts[0].max_shape[1:])
        return graph.tensor(
            weights.dtype, shape, f"{weights.name}.interleaved", Joined(parts, 0), INTERLEAVED
        )
    assert isinstance(constant, Constant)
    rows, row = weights.max_shape
    split = (rows // COLUMNS, COLUMNS, row // part, part)
    same = graph.tensor(weights.dtype, split, weights.name, Constant(constant.data, constant.host_type))
    permuted = permuted_constant(graph, same, (0, 2, 1, 3))
    interleaved = replace(permuted, layout=INTERLEAVED)
    graph.values[permuted.id] = interleaved
    return interleaved
