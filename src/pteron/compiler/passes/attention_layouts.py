"""Attention reads its operands where products left them, on GPUs.

Programs permute queries, keys and values from [B, S, H, D] to [B, H, S, D], and the result back. The kernels
of attention read and write both layouts, so the copies are not needed. They also read masks that broadcast.
"""

from __future__ import annotations

import math
from typing import Any

from pteron.compiler.ir.values import Graph, Node, Tensor
from pteron.compiler.passes.edit import Replacement, Uses, rebuild

SDPA, PERMUTE = "et_vk.sdpa.default", "aten.permute_copy.default"
EXPAND = "aten.expand_copy.default"
SWAPPED = (0, 2, 1, 3)


def fuse(graph: Graph) -> Graph:
    uses = Uses(graph)
    replacements: dict[int, Replacement] = {}
    for node in graph.nodes:
        if node.name == SDPA and node.when is None and (found := _in_place(node, uses)) is not None:
            replacements[node.index] = found
    return rebuild(graph, replacements)


def _in_place(node: Node, uses: Uses) -> Replacement | None:
    """Attention without the permutations around it. Queries and the result have one layout, and so have keys
    and values.
    """
    args: tuple[Any, ...] = node.args
    q, k, v, mask, scale, out = args
    queries, keys, values = (_written_by_swap(x, uses) for x in (q, k, v))
    result = _read_by_swap(out, uses)
    left_out: list[Node] = []
    if by_queries := queries is not None and result is not None:
        q, out = queries.args[0], result.args[-1]
        left_out += [queries, result]
    if by_keys := keys is not None and values is not None:
        k, v = keys.args[0], values.args[0]
        left_out += [keys, values]
    if (expand := _expand_of(mask, uses)) is not None:
        mask = expand.args[0]
        left_out.append(expand)
    if not left_out:
        return None
    factor = 1 / math.sqrt(q.max_shape[-1]) if scale is None else scale
    in_place = (q, k, v, mask, factor, by_queries, by_keys, False, out)
    return Replacement("pteron.attention", in_place, (node, *left_out))


def _expand_of(mask: Tensor | None, uses: Uses) -> Node | None:
    """The node that broadcasts a mask which nothing else reads."""
    writer = None if mask is None else uses.writer.get(mask.id)
    if mask is None or writer is None or writer.name != EXPAND or writer.when is not None:
        return None
    source: Any = writer.args[0]
    alone = len(uses.readers[mask.id]) == 1 and not uses.is_output(mask)
    return writer if alone and uses.is_settled(source) and len(source.max_shape) <= 4 else None


def _written_by_swap(tensor: Any, uses: Uses) -> Node | None:
    """The permutation that makes a tensor which nothing else reads."""
    writer = uses.writer.get(tensor.id)
    alone = len(uses.readers[tensor.id]) == 1 and not uses.is_output(tensor)
    return writer if alone and writer is not None and _swaps(writer, uses) else None


def _read_by_swap(tensor: Tensor, uses: Uses) -> Node | None:
    readers = uses.readers[tensor.id]
    alone = len(readers) == 1 and not uses.is_output(tensor)
    return readers[0] if alone and _swaps(readers[0], uses) else None


def _swaps(node: Node, uses: Uses) -> bool:
    if node.name != PERMUTE or node.when is not None:
        return False
    args: tuple[Any, ...] = node.args
    source, order, made = args
    is_swap = len(order) == 4 and tuple(d % 4 for d in order) == SWAPPED
    return is_swap and uses.is_settled(source) and uses.is_settled(made)
