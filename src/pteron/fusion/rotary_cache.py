"""Fuse a rotary embedding and the attention with a KV cache that follows it into one node.

One kernel rotates the queries, rotates the keys and writes them to their cache, and copies the values to
their cache. Without the pass these are four kernels. The attention kernels do not change.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pteron.fusion.edit import Replacement, Uses, rebuild
from pteron.ir.checks import check
from pteron.ir.dispatch import Dispatch, Route, describe, quads, threads
from pteron.ir.dtypes import DType
from pteron.ir.live import LiveInt, LiveTensor
from pteron.ir.op import op
from pteron.ir.values import Graph, Node, Tensor
from pteron.ir.work import LiveArguments, Work
from pteron.ops.attention import cached_attention, windowed_sdpa_work
from pteron.ops.rope import rotation, table_rows
from pteron.ops.segmented import CACHED, At, rotate_into_caches, segmented_attention
from pteron.ops.writes import check_room

ROTARY = (
    "et_vk.apply_rotary_emb.default",
    "et_vk.apply_rotary_emb_hf.default",
    "pteron.segmented_rotary_emb_hf",
)
# Operators of attention, and the operator that also rotates.
SDPA = {
    "sdpa_with_kv_cache.default": "pteron.rotary_sdpa_with_kv_cache",
    "pteron.sdpa_with_kv_cache.default": "pteron.rotary_sdpa_with_kv_cache",
    "pteron.segmented_sdpa_with_kv_cache": "pteron.segmented_rotary_sdpa",
    "pteron.segmented_windowed_sdpa": "pteron.segmented_rotary_sdpa",
}


def _work(call: LiveArguments) -> Work:
    """The work of attention. Only the rows of the live positions are read from the tables."""
    attention = windowed_sdpa_work(call)
    return replace(attention, parts={**attention.parts, **table_rows(call, call["q"].shape[1])})


@op(
    "pteron.rotary_sdpa_with_kv_cache",
    mutates=["key_cache", "value_cache"],
    uniforms=["row", "start_pos"],
    work=_work,
)
def rotary_sdpa_with_kv_cache(
    q: LiveTensor,
    k: LiveTensor,
    v: LiveTensor,
    cos: LiveTensor,
    sin: LiveTensor,
    row: LiveInt | None,
    key_cache: LiveTensor,
    value_cache: LiveTensor,
    start_pos: LiveInt,
    mask: LiveTensor | None,
    dropout: float,
    is_causal: bool,
    scale: float | None,
    window: int | None,
    softcap: float | None,
    outs: tuple[LiveTensor, LiveTensor],
) -> list[Route]:
    """`row` is the first table row if halves are rotated. None: neighbours are rotated."""
    turned, out = outs
    turn = rotation(q, k, cos, sin, row)
    check_room(k, key_cache, start_pos)
    check_room(v, value_cache, start_pos)
    check(
        k.shape == v.shape, f"key {describe(k.shape)} and value {describe(v.shape)} must have the same shape"
    )
    turned.resize(q.shape)
    _, length, heads, width = q.shape
    params = {
        "q_quads": quads(q.numel),
        "k_quads": quads(k.numel),
        "q_heads": heads,
        "k_heads": k.shape[2],
        "width": width,
        "length": length,
        "capacity": key_cache.shape[1],
        **turn.params,
    }
    stored = Dispatch(
        "rope_cache",
        {
            "q": q,
            "k": k,
            "v": v,
            "y": turned,
            "key_cache": key_cache,
            "value_cache": value_cache,
            "start_pos": start_pos,
            **turn.bindings,
        },
        params,
        threads(quads(q.numel) + quads(k.numel)),
        turn.defines,
    )
    routes = cached_attention(
        turned, key_cache, value_cache, start_pos, mask, dropout, is_causal, scale, window, softcap, out
    )
    return [replace(route, dispatches=[stored, *route.dispatches]) for route in routes]


@op("pteron.segmented_rotary_sdpa", mutates=["key_cache", "value_cache"], work=CACHED)
def segmented_rotary_sdpa(
    q: LiveTensor,
    k: LiveTensor,
    v: LiveTensor,
    cos: LiveTensor,
    sin: LiveTensor,
    row: At | None,
    key_cache: LiveTensor,
    value_cache: LiveTensor,
    at: At,
    mask: None,
    dropout: float,
    is_causal: bool,
    scale: float | None,
    window: int | None,
    softcap: float | None,
    outs: tuple[LiveTensor, LiveTensor],
) -> list[Route]:
    """The same for the rows of several sequences.

    row: tables have a row for each position, and halves are rotated. None: tables have a row for each row of
    q, and neighbours are rotated.
    """
    turned, out = outs
    check(
        k.shape == v.shape, f"key {describe(k.shape)} and value {describe(v.shape)} must have the same shape"
    )
    stored = rotate_into_caches(q, k, v, cos, sin, row, key_cache, value_cache, at, turned)
    routes = segmented_attention(turned, key_cache, value_cache, at, dropout, scale, window, softcap, out)
    return [replace(route, dispatches=[*stored, *route.dispatches]) for route in routes]


def fuse(graph: Graph) -> Graph:
    uses = Uses(graph)
    replacements: dict[int, Replacement] = {}
    for sdpa in graph.nodes:
        rotary = _rotary_before(sdpa, uses)
        if rotary is None:
            continue
        q, k, cos, sin, *row, (turned, _) = _args(rotary)
        _, _, v, key_cache, value_cache, start_pos, _, *how, out = _args(sdpa)
        how = [*how, None, None][:6]  # ExecuTorch's operator has no window and no soft-cap
        caches = (key_cache, value_cache, start_pos)
        args = (q, k, v, cos, sin, row[0] if row else None, *caches, *how)
        replacements[sdpa.index] = Replacement(SDPA[sdpa.name], (*args, (turned, out)), (rotary, sdpa))
    return rebuild(graph, replacements)


def _args(node: Node) -> tuple[Any, ...]:
    return node.args


def _rotary_before(sdpa: Node, uses: Uses) -> Node | None:
    """The rotary embedding that computes the queries and keys of a node. None if the two cannot be fused."""
    if sdpa.name not in SDPA or sdpa.when is not None:
        return None
    turned_q, turned_k, _, key_cache, value_cache, *_ = _args(sdpa)
    rotary = uses.writer.get(turned_q.id)
    if rotary is None or rotary.name not in ROTARY or rotary.when is not None:
        return None
    results = [t for t in rotary.writes if isinstance(t, Tensor)]
    still = all(uses.is_settled(t) for t in (*rotary.reads, *results) if isinstance(t, Tensor))
    fits = (
        results == [turned_q, turned_k]
        and len(_args(rotary)[2].max_shape) == 2  # the table has no batch dimension
        and all(uses.readers[t.id] == [sdpa] and not uses.is_output(t) for t in results)
        # Keys are rounded once, to the cache's dtype. Without fusion they are rounded to their own dtype too.
        and turned_k.dtype in (DType.float32, key_cache.dtype)
        and key_cache is not value_cache
        and key_cache.max_shape == value_cache.max_shape
        and turned_k.max_shape[-1] % 4 == 0  # so that no two tokens share a word of a cache
    )
    return rotary if still and fits else None
