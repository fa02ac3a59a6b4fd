"""Nodes that compute what another node has computed are left out, on GPUs, where each costs microseconds.

Exported models repeat in every layer what belongs to none, such as the mask of attention. Only small results
are kept for the later readers: large ones would take memory all the time.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from pteron.compiler.ir.values import Constant, Graph, Node, SymInt, Tensor, ValueId
from pteron.compiler.passes.edit import Replacement, Uses, rebuild

MOST_NBYTES = 1 << 20  # of a result
FEW_NBYTES = 16  # of constants that are compared by their bytes


def fuse(graph: Graph) -> Graph:
    uses = Uses(graph)
    first: dict[Hashable, Tensor] = {}
    same: dict[ValueId, ValueId] = {}  # the earlier of two equal results, by the later one
    replacements: dict[int, Replacement] = {}
    for node in graph.nodes:
        if not _is_plain(node, uses):
            continue
        (result,) = node.writes
        assert isinstance(result, Tensor)
        args = tuple(_key(arg, same) for arg in node.args if arg is not result)
        known = first.setdefault((node.name, result.dtype, result.max_shape, args), result)
        if known is not result:
            same[result.id] = known.id
            replacements[node.index] = Replacement("aten.clone.default", (known, None, result), (node,))
    return rebuild(graph, replacements)


def _is_plain(node: Node, uses: Uses) -> bool:
    """Whether a node depends only on its arguments, which do not change."""
    if node.when is not None or node.mutates or len(node.writes) != 1:
        return False
    (result,) = node.writes
    if not isinstance(result, Tensor) or result.max_nbytes > MOST_NBYTES or uses.is_output(result):
        return False
    return all(isinstance(value, SymInt) or uses.is_settled(value) for value in (*node.reads, result))


def _key(arg: Any, same: dict[ValueId, ValueId]) -> Hashable:
    """Equal for arguments that are equal in every call."""
    if isinstance(arg, Tensor):
        constant = arg.constant
        if isinstance(constant, Constant) and arg.max_nbytes <= FEW_NBYTES:
            return bytes(constant.data), constant.host_type, arg.dtype, arg.max_shape
        return same.get(arg.id, arg.id)
    if isinstance(arg, SymInt):
        return arg.id
    if isinstance(arg, tuple):
        return tuple(_key(each, same) for each in arg)
    return type(arg), arg
