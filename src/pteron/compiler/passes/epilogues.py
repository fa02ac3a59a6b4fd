"""Linear layers and convolutions apply the activation that follows them, before they store their results.

An activation is an elementwise function of one float32 tensor. Views may lie between the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pteron.compiler.ir.checks import OpError
from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ir.values import Graph, Node, Tensor
from pteron.compiler.ops.elementwise import ElementwiseRule
from pteron.compiler.passes.edit import Replacement, Uses, rebuild

WITH_EPILOGUE = {
    "aten.linear.default": "pteron.linear_with_epilogue",
    "pteron.packed_convolution": "pteron.convolution_with_epilogue",
}


def fuse(graph: Graph) -> Graph:
    """All that a software adapter has kernels for."""
    return _fuse(graph, WITH_EPILOGUE)


def fuse_convolutions(graph: Graph) -> Graph:
    """Only convolutions, which have such kernels for every device."""
    convolution = "pteron.packed_convolution"
    return _fuse(graph, {convolution: WITH_EPILOGUE[convolution]})


def _fuse(graph: Graph, with_epilogue: Mapping[str, str]) -> Graph:
    uses = Uses(graph)
    replacements: dict[int, Replacement] = {}
    for node in graph.nodes:
        name = with_epilogue.get(node.name)
        activation = None if name is None else _activation_after(node, uses)
        if name is None or activation is None:
            continue
        epilogue = _expression(activation)
        if epilogue is None:
            continue
        (result,), (before,), (after,) = node.writes, activation.reads, activation.writes
        assert isinstance(result, Tensor) and isinstance(before, Tensor) and isinstance(after, Tensor)
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


def _activation_after(node: Node, uses: Uses) -> Node | None:
    """The elementwise node that alone reads the result, or views of it."""
    if node.when is not None or not all(_is_plain(value, uses) for value in (*node.reads, *node.writes)):
        return None
    reader = node
    while True:
        result: Any = reader.writes[0]
        readers = uses.readers[result.id]
        if len(readers) != 1 or uses.is_output(result):
            return None
        reader = readers[0]
        if reader.when is not None or not all(_is_plain(value, uses) for value in reader.writes):
            return None
        if reader.op.alias is None:
            return reader
        if any(isinstance(value, Tensor) and value is not result for value in reader.reads):
            return None


def _is_plain(value: Any, uses: Uses) -> bool:
    return isinstance(value, Tensor) and value.dtype is DType.float32 and uses.is_settled(value)


def _expression(node: Node) -> str | None:
    """The WGSL expression of a node with one operand and without scalars."""
    rule = node.op.rule
    if not isinstance(rule, ElementwiseRule) or len(node.reads) != 1:
        return None
    try:
        function = rule.describe(*node.args)
    except (OpError, ArithmeticError):
        return None
    if function is None or function.scalars or function.integer or len(rule.operands(node.args)) != 1:
        return None
    return function.expression
