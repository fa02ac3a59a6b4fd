"""Fuse a residual sum and the RMS norm of it into one kernel, which writes both results."""

from __future__ import annotations

from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ir.values import Graph, Node, Tensor
from pteron.compiler.passes.edit import Replacement, Uses, rebuild

ADD, RMS_NORM = "aten.add.Tensor", "et_vk.rms_norm.default"


def fuse(graph: Graph) -> Graph:
    uses = Uses(graph)
    replacements: dict[int, Replacement] = {}
    for norm in graph.nodes:
        add = _sum_before(norm, uses)
        if add is None or add.index in replacements:
            continue
        a, b, _, total = add.args
        _, weight, eps, y = norm.args
        # At the position of the sum: all readers of the sum and of the norm come later.
        replacements[add.index] = Replacement(
            "pteron.add_rms_norm", (a, b, weight, eps, (total, y)), (add, norm)
        )
    return rebuild(graph, replacements)


def _sum_before(norm: Node, uses: Uses) -> Node | None:
    """The addition that computes the input of the norm. None if the two cannot be fused."""
    if norm.name != RMS_NORM or norm.when is not None:
        return None
    x, weight, _, y = norm.args
    add = uses.writer.get(x.id)
    if add is None or add.name != ADD or add.when is not None or add.args[2] != 1 or weight.constant is None:
        return None
    tensors = [t for t in (*add.reads, *add.writes, weight, y) if isinstance(t, Tensor)]
    plain = all(t.dtype is DType.float32 and uses.is_settled(t) for t in tensors)
    return add if plain and weight.max_shape[0] % 4 == 0 else None
