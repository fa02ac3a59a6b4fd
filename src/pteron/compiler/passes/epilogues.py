"""Linear layers and convolutions apply the activation that follows them, before they store their results.

An activation is an elementwise function of one float32 tensor. Views may lie between the two. On GPUs, linear
layers also add a tensor of the same shape, as in a residual sum.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ir.values import Graph, Node, Tensor
from pteron.compiler.ops.elementwise import function_of
from pteron.compiler.passes.edit import Replacement, Uses, rebuild
from pteron.compiler.passes.shape_comparison import ShapeComparison

LINEAR, SUM = "aten.linear.default", "aten.add.Tensor"
WITH_SUM = "pteron.linear_with_sum"
WITH_EPILOGUE = {
    LINEAR: "pteron.linear_with_epilogue",
    "pteron.packed_convolution": "pteron.convolution_with_epilogue",
}


def fuse_with_sums(graph: Graph) -> Graph:
    return _with_sums(fuse(graph))


def _with_sums(graph: Graph) -> Graph:
    uses, shapes = Uses(graph), ShapeComparison(graph)
    replacements: dict[int, Replacement] = {}
    for node in graph.nodes:
        found = _reader_after(node, uses) if node.name == LINEAR else None
        if found is None or found[0].name != SUM or found[0].index in replacements:
            continue
        reader, own = found
        first, second, factor, total = reader.args
        other = second if first is own else first
        if factor != 1 or other is own or not _is_plain(other, uses) or not shapes.are_alike(other, own):
            continue
        (result,), writer = node.writes, uses.writer.get(other.id)
        if own is result:
            args = (*node.args[:-1], other, total)
            replacements[reader.index] = Replacement(WITH_SUM, args, (node, reader))
        elif writer is None or writer.index < node.index:  # the views stay, and the sum is one more view
            args = (*node.args[:-1], other, result)
            replacements[node.index] = Replacement(WITH_SUM, args, (node,))
            replacements[reader.index] = Replacement("aten.clone.default", (own, None, total), (reader,))
    return rebuild(graph, replacements)


def fuse(graph: Graph) -> Graph:
    uses = Uses(graph)
    replacements: dict[int, Replacement] = {}
    for node in graph.nodes:
        name = WITH_EPILOGUE.get(node.name)
        found = None if name is None else _reader_after(node, uses)
        if name is None or found is None:
            continue
        activation, _ = found
        epilogue = _expression(activation)
        if epilogue is None:
            continue
        result, (before,), after = node.args[-1], activation.reads, activation.args[-1]
        if before is result:  # at the position of the activation: its result has no earlier place
            args = (*node.args[:-1], epilogue, after)
            replacements[activation.index] = Replacement(name, args, (node, activation))
        else:  # the views stay, and the result of the activation is one more view
            moved = replace(
                activation, args=(result, *activation.args[1:-1], result), reads=(result,), writes=(result,)
            )
            args = (*node.args[:-1], epilogue, result)
            replacements[node.index] = Replacement(name, args, (node, moved))
            replacements[activation.index] = Replacement(
                "aten.clone.default", (before, None, after), (activation,)
            )
    return rebuild(graph, replacements)


def _reader_after(node: Node, uses: Uses) -> tuple[Node, Tensor] | None:
    """The node that alone reads the result, or views of it, and what it reads."""
    if node.when is not None or not all(_is_plain(value, uses) for value in (*node.reads, *node.writes)):
        return None
    reader = node
    while True:
        result = reader.args[-1]
        after = uses.only_reader(result)
        if after is None or not all(_is_plain(value, uses) for value in after.writes):
            return None
        if after.op.alias is None:
            return after, result
        if any(isinstance(value, Tensor) and value is not result for value in after.reads):
            return None
        reader = after


def _is_plain(value: Any, uses: Uses) -> bool:
    return isinstance(value, Tensor) and value.dtype is DType.float32 and uses.is_settled(value)


def _expression(node: Node) -> str | None:
    """The WGSL expression of a node with one operand and without scalars."""
    found = function_of(node)
    if found is None or len(node.reads) != 1:
        return None
    function, operands = found
    plain = not function.scalars and not function.integer and len(operands) == 1
    return function.expression if plain else None
