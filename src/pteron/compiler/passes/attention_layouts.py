"""Attention reads its operands where products left them, on GPUs.

Programs permute queries, keys and values from [B, S, H, D] to [B, H, S, D], and the result back. The kernels
of attention read and write both layouts, so the copies are not needed. They also read masks that broadcast.
A factor for each query (rows without visible keys become zeros) moves behind the permutation of the result.
"""

from __future__ import annotations

import math
from typing import Any

from pteron.compiler.ir.values import Graph, Node, Tensor
from pteron.compiler.passes.edit import Replacement, Uses, growable, rebuild

SDPA, PERMUTE = "et_vk.sdpa.default", "aten.permute_copy.default"
EXPAND, FACTOR = "aten.expand_copy.default", "aten.mul.Tensor"
SWAPPED = (0, 2, 1, 3)


def fuse(graph: Graph) -> Graph:
    return _without_permutes(_with_late_factors(graph))


def _with_late_factors(graph: Graph) -> Graph:
    """permute(attention * factor) = permute(attention) * factor, with a factor [B, S, 1, 1]."""
    graph = growable(graph)
    uses = Uses(graph)
    replacements: dict[int, list[Replacement]] = {}
    for node in graph.nodes:
        product = _only_reader(node, uses) if node.name == SDPA else None
        permute = _only_reader(product, uses) if product is not None and product.name == FACTOR else None
        if product is None or permute is None or not _swaps(permute, uses):
            continue
        a, b, _ = product.args
        result, out = node.args[-1], permute.args[-1]
        factor = b if a is result else a
        if factor is result or not _is_for_queries(factor) or not uses.is_settled(factor):
            continue
        batch, _, length, _ = factor.max_shape
        rows = graph.tensor(result.dtype, out.max_shape, f"{result.name}.in_place")
        flat, last = (
            graph.tensor(factor.dtype, (batch, length, *ones), f"{factor.name}.in_place")
            for ones in ((1,), (1, 1))
        )
        replacements[product.index] = [
            Replacement(PERMUTE, (result, SWAPPED, rows), (product,)),
            Replacement("aten.squeeze_copy.dims", (factor, (1,), flat), (product,)),
            Replacement("aten.unsqueeze_copy.default", (flat, 3, last), (product,)),
        ]
        replacements[permute.index] = [Replacement(FACTOR, (rows, last, out), (permute,))]
    return rebuild(graph, replacements)


def _is_for_queries(factor: Any) -> bool:
    """Whether it is [B, 1, S, 1]."""
    shape = factor.max_shape if isinstance(factor, Tensor) else ()
    return len(shape) == 4 and shape[1] == shape[3] == 1


def _only_reader(node: Node, uses: Uses) -> Node | None:
    return uses.only_reader(node.args[-1]) if node.when is None else None


def _without_permutes(graph: Graph) -> Graph:
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
    q, k, v, mask, scale, out = node.args
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
    source = writer.args[0]
    alone = uses.only_reader(mask) is not None
    return writer if alone and uses.is_settled(source) and len(source.max_shape) <= 4 else None


def _written_by_swap(tensor: Any, uses: Uses) -> Node | None:
    """The permutation that makes a tensor which nothing else reads."""
    writer = uses.writer.get(tensor.id)
    alone = uses.only_reader(tensor) is not None
    return writer if alone and writer is not None and _swaps(writer, uses) else None


def _read_by_swap(tensor: Tensor, uses: Uses) -> Node | None:
    reader = uses.only_reader(tensor)
    return reader if reader is not None and _swaps(reader, uses) else None


def _swaps(node: Node, uses: Uses) -> bool:
    if node.name != PERMUTE or node.when is not None:
        return False
    source, order, made = node.args
    is_swap = len(order) == 4 and tuple(d % 4 for d in order) == SWAPPED
    return is_swap and uses.is_settled(source) and uses.is_settled(made)
