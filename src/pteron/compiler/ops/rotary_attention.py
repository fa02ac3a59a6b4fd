"""A rotary embedding and the attention with a KV cache that follows it.

One kernel rotates the queries, rotates the keys and writes them to their cache, and copies the values to
their cache. The attention kernels are those of attention alone.
"""

from __future__ import annotations

from dataclasses import replace

from pteron.compiler.ir.rule import (
    Dispatch,
    LiveArguments,
    LiveInt,
    LiveTensor,
    Route,
    Work,
    check,
    describe,
    op,
    quads,
    threads,
)
from pteron.compiler.ops.attention import cached_attention, windowed_sdpa_work
from pteron.compiler.ops.rope import rotation, table_rows
from pteron.compiler.ops.segmented import CACHED, At, rotate_into_caches, segmented_attention
from pteron.compiler.ops.writes import check_room


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
