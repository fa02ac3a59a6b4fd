"""Fuse the product that makes queries, keys and values with the rotary embedding and the cache, on GPUs."""

from __future__ import annotations

from typing import Any

from pteron.compiler.ir.constants import joined_constant
from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ir.values import Graph, Node, Tensor, ValueId
from pteron.compiler.passes.edit import Replacement, Uses, growable, rebuild
from pteron.compiler.passes.fused_products import FUSED, MOST_BUFFERS, is_product

ROTARY = "pteron.rotary_sdpa_with_kv_cache"


def fuse(graph: Graph) -> Graph:
    graph = growable(graph)
    uses = Uses(graph)
    tables: dict[tuple[ValueId, ValueId], Tensor] = {}
    replacements: dict[int, list[Replacement]] = {}
    for node in graph.nodes:
        made = _sources(node, uses) if node.name == ROTARY and node.when is None else None
        if made is None:
            continue
        product, views = made
        cos, sin, row, keys, values, start, *how, (turned, out) = node.args[3:]
        key = cos.id, sin.id
        if key not in tables:
            tables[key] = joined_constant(graph, (cos, sin), axis=1)
        x, *layer = _layer(product)
        args = (x, *layer, cos, sin, tables[key], row, keys, values, start, turned)
        mask, dropout, is_causal, scale, _, _ = how
        attention = (turned, keys, values, start, mask, dropout, is_causal, scale, out)
        replacements[node.index] = [
            Replacement("pteron.fused_qkv", args, (product, *views, node)),
            Replacement("custom_sdpa.default", attention, (node,)),
        ]
    return rebuild(graph, replacements)


def _sources(node: Node, uses: Uses) -> tuple[Node, list[Node]] | None:
    """The product whose results a node rotates, and the views between the two; None if it cannot be fused."""
    q, k, v, cos, sin, row, keys, values, _, mask, _, is_causal, _, window, softcap, (turned, _) = node.args
    views = [uses.writer.get(each.id) for each in (q, k, v)]
    if any(view is None or view.op.alias is None or view.when is not None for view in views):
        return None
    found: list[Node] = [view for view in views if view is not None]
    results = [view.args[0] for view in found]
    product = uses.writer.get(results[0].id)
    if product is None or not (product.name == FUSED or is_product(product, uses)):
        return None
    width = turned.max_shape[-1]
    single = all(uses.readers[r.id] == [view] for r, view in zip(results, found, strict=True)) and all(
        uses.readers[each.id] == [node] for each in (q, k, v)
    )
    fits = (
        single
        and not any(uses.is_output(t) for t in (q, k, v, *results) if isinstance(t, Tensor))
        and list(product.args[-1]) == results
        and row is not None
        and mask is None
        and is_causal
        and window is None
        and softcap is None
        and q.max_shape[0] == 1
        and width % 8 == 0
        and keys.dtype == values.dtype
        and keys.dtype in (DType.float16, DType.float32)
        and all(t.constant is not None and t.dtype is DType.float32 for t in (cos, sin))
        and cos.max_shape == sin.max_shape
        and cos.max_shape[-1] == width
        and _storage_buffers(product) <= MOST_BUFFERS
    )
    return (product, found) if fits else None


def _storage_buffers(product: Node) -> int:
    """Of the fused kernel: x, the layer, and the queries, the two caches and the tables."""
    return 4 + sum(isinstance(arg, Tensor) for arg in _layer(product))


def _layer(product: Node) -> tuple[Any, ...]:
    """x, the norm with its epsilon, and the stored weights of a product."""
    if product.name == FUSED:
        return product.args[:10]
    x, *stored, _ = product.args
    return (x, None, 0.0, *stored)
