"""A convolution whose result is only read by a clamp with constant limits, such as ReLU, clamps it itself."""

from __future__ import annotations

from pteron.compiler.ir.values import Graph, Node, Tensor
from pteron.compiler.passes.edit import Replacement, Uses, rebuild

CONVOLUTION, CLAMPED = "aten.convolution.default", "et_vk.conv_with_clamp.default"


def fuse(graph: Graph) -> Graph:
    uses = Uses(graph)
    replacements: dict[int, Replacement] = {}
    for node in graph.nodes:
        clamp = _only_reader(node, uses) if node.name == CONVOLUTION and node.when is None else None
        limits = None if clamp is None else _limits(clamp)
        if clamp is not None and limits is not None:
            args = (*node.args[:-1], *limits, clamp.args[-1])
            replacements[clamp.index] = Replacement(CLAMPED, args, (node, clamp))
    return rebuild(graph, replacements)


def _only_reader(node: Node, uses: Uses) -> Node | None:
    """The node that reads the result, if it is the only one and every tensor keeps its values."""
    result = node.args[-1]
    reader = uses.only_reader(result)
    if reader is None:
        return None
    made = [value for value in reader.writes if isinstance(value, Tensor)]  # a reader of the size makes none
    if not result.dtype.is_float or [tensor.dtype for tensor in made] != [result.dtype]:
        return None
    return reader if all(uses.is_settled(t) for t in (*node.reads, result, *made)) else None


def _limits(node: Node) -> tuple[float | None, float | None] | None:
    match node.name, node.args:
        case "aten.relu.default", _:
            return 0.0, None
        case "aten.relu6.default", _:
            return 0.0, 6.0
        case (
            "aten.clamp.default" | "aten.hardtanh.default",
            (_, int() | float() | None as low, int() | float() | None as high, _),
        ):
            if low is not None and high is not None:
                low = min(low, high)  # the upper limit wins, as in torch
            return None if low is None else float(low), None if high is None else float(high)
    return None
