"""Give convolutions their constant weights in an order that kernels can read in quads of output channels.

The weight [out, in / groups, kernel..] is permuted to [in / groups, kernel.., out] once, at upload.
"""

from __future__ import annotations

from pteron.compiler.ir.constants import permuted_constant
from pteron.compiler.ir.values import Constant, Folded, Graph, Node, Tensor, ValueId
from pteron.compiler.passes.edit import Replacement, Uses, growable, rebuild

CONVOLUTION, CLAMPED = "aten.convolution.default", "et_vk.conv_with_clamp.default"
PACKED = "pteron.packed_convolution"


def fuse(graph: Graph) -> Graph:
    uses = Uses(graph)
    graph = growable(graph)
    packed: dict[ValueId, Tensor] = {}  # convolutions may share a weight
    replacements: dict[int, Replacement] = {}
    for node in graph.nodes:
        weight = _constant_weight(node, uses)
        if weight is None:
            continue
        if weight.id not in packed:
            order = (*range(1, len(weight.max_shape)), 0)
            packed[weight.id] = permuted_constant(graph, weight, order)
        x, _, bias, stride, padding, dilation, _, _, groups, *limits, out = node.args
        low, high = limits or (None, None)
        args = (x, packed[weight.id], bias, stride, padding, dilation, groups, low, high, out)
        replacements[node.index] = Replacement(PACKED, args, (node,))
    return rebuild(graph, replacements)


def _constant_weight(node: Node, uses: Uses) -> Tensor | None:
    """The weight of a convolution that is not transposed, if it is a constant of the file."""
    if node.name not in (CONVOLUTION, CLAMPED):
        return None
    weight, transposed = node.args[1], node.args[6]
    if transposed or not isinstance(weight, Tensor) or len(weight.max_shape) < 3:
        return None
    return weight if isinstance(weight.constant, (Constant, Folded)) and uses.is_settled(weight) else None
