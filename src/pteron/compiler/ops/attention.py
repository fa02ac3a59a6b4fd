"""Attention: with a KV cache, without one, and with a mask.

The position is a uniform, so a decode step changes it without a new plan. The kernels are in
`attention_routes`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pteron.compiler.ir.extensions import more_routes
from pteron.compiler.ir.rule import (
    GPU,
    LiveArguments,
    LiveInt,
    LiveTensor,
    Route,
    RowArguments,
    Segmented,
    Shape,
    Unused,
    Work,
    check,
    describe,
    first_rows,
    op,
)
from pteron.compiler.ops.attention_routes import (
    FEW_QUERIES,
    FLASH_TILE,
    MANY_TILES,
    SMALL_FLASH_TILE,
    Heads,
    Layout,
    Operands,
    attention_operands,
    flash_dispatch,
    general_dispatches,
    heads_first,
    sequence_first,
    split_dispatches,
    suits_tiles,
)
from pteron.compiler.ops.shapes import broadcast_strides
from pteron.compiler.ops.writes import cache_update


@dataclass(frozen=True, slots=True)
class Attention:
    """One call of attention, for extensions."""

    plain: Operands
    masked: Operands  # the same with the mask, if there is one
    has_mask: bool
    largest: tuple[Heads, Heads]  # of few queries, and of keys
    are_few: bool  # the queries


def attention(
    q: LiveTensor,
    k: LiveTensor,
    v: LiveTensor,
    out: LiveTensor,
    layout: Layout,
    *,
    key_layout: Layout | None = None,
    start_pos: LiveInt,
    causal: bool,
    context: int | None = None,
    mask: LiveTensor | None = None,
    scale: float | None = None,
    window: int | None = None,
    softcap: float | None = None,
    empty_is_zero: bool = False,
) -> list[Route]:
    """softmax(q k^T * scale + mask) v, over the first `context` keys. None: the first start_pos + S keys.

    With a window, a query sees its own key and those just before it: `window` keys at most. With a soft-cap,
    scores become softcap * tanh(score / softcap) before the mask. A query that sees no key gives NaN, or 0 if
    `empty_is_zero`. The output has the layout of the queries, and values have the layout of the keys.
    """
    layouts = layout, key_layout or layout
    plain = attention_operands(
        q, k, v, out, layouts, start_pos, causal, context, scale, window, softcap, empty_is_zero
    )
    queries, keys = plain.queries, plain.keys
    check(
        queries.batch == keys.batch,
        f"query {describe(q.shape)} and key {describe(k.shape)} do not have the same batch",
    )
    masked = plain
    if mask is not None:
        _check_mask_covers(mask, context)
        strides = _mask_strides(mask, (queries.batch, queries.heads, queries.length), keys.length)
        one = all(size == 1 for size in mask.max_shape[-3:-1])  # for all heads and queries of a batch
        kind = {
            "MASK": "shared" if one else "per_row",
            "MASK_IS_BOOL": mask.dtype.label == "bool",
        }
        masked = replace(
            plain,
            bindings={**plain.bindings, "mask": mask},
            params={**plain.params, **strides},
            defines={**plain.defines, **kind},
        )
    largest = layout(q.max_shape)
    most = replace(largest, length=min(largest.length, FEW_QUERIES - 1)), layouts[1](k.max_shape)
    are_few = queries.length < FEW_QUERIES
    has_few_tiles = queries.blocks(FLASH_TILE) < MANY_TILES
    routes = []
    if suits_tiles(plain):
        routes += [
            Route("split", split_dispatches(plain, masked, most), when=are_few, target=GPU),
            Route("small flash", [flash_dispatch(masked, SMALL_FLASH_TILE)], when=has_few_tiles, target=GPU),
            Route("flash", [flash_dispatch(masked)], target=GPU),
        ]
    routes += more_routes(Attention(plain, masked, mask is not None, most, are_few))
    return [*routes, Route("any", general_dispatches(masked, out))]


def _check_mask_covers(mask: LiveTensor, context: int | None) -> None:
    """A mask must have a column for every key, unless it has one for all."""
    seen = mask.shape[-1] if mask.rank else 1
    check(seen in (1, context), f"mask {describe(mask.shape)} does not cover {context} keys")


def _mask_strides(mask: LiveTensor, rows: Shape, keys: int) -> dict[str, int]:
    """Strides of a mask that broadcasts to [batch, heads, queries, keys]."""
    names = ("mask_batch", "mask_head", "mask_length", "mask_key")
    check(mask.rank <= 4, f"mask must have at most 4 dimensions, not shape {describe(mask.shape)}")
    full = (1,) * (4 - mask.rank) + mask.shape
    for have, want in zip(full[:3], rows, strict=True):
        check(
            have in (1, want), f"mask {describe(mask.shape)} does not broadcast to {describe((*rows, keys))}"
        )
    return dict(zip(names, broadcast_strides(full, (*rows, max(full[3], keys))), strict=True))


def is_not_causal(call: RowArguments) -> str | None:
    """Why the rows of several sequences cannot be computed together."""
    if call["mask"] is not None:
        return "its mask is for the positions of one sequence"
    return None if call["is_causal"] else "it is not causal"


def _cached_work(call: LiveArguments, window: int | None, *caches: str) -> Work:
    """Only the visible rows of the caches are read. A query and a key need two multiply-adds per element."""
    batch, length, heads, width = call["q"].shape
    end = (call["start_pos"] or 0) + length if call["mask"] is None else call[caches[0]].shape[1]
    seen = end if window is None else min(end, window + length - 1)
    pairs = length * end
    if call["is_causal"]:
        pairs = sum(min(last, window or last) for last in range(end - length + 1, end + 1))
    rows = {name: first_rows(call[name], seen, dim=1) for name in caches}
    return Work(4 * batch * heads * width * pairs, rows)


def sdpa_with_kv_cache_work(call: LiveArguments, window: int | None = None) -> Work:
    return _cached_work(call, window, "key_cache", "value_cache")


def windowed_sdpa_work(call: LiveArguments) -> Work:
    return sdpa_with_kv_cache_work(call, call["window"])


def _custom_sdpa_work(call: LiveArguments) -> Work:
    return _cached_work(call, None, "k", "v")


def _sdpa_work(call: LiveArguments) -> Work:
    return Work(4 * call["out"].numel * call["k"].shape[-2])


@op(
    "sdpa_with_kv_cache.default",
    mutates=["key_cache", "value_cache"],
    uniforms=["start_pos"],
    work=sdpa_with_kv_cache_work,
    rows=Segmented(
        "pteron.segmented_sdpa_with_kv_cache",
        at="start_pos",
        rows=("q", "k", "v"),
        caches=("key_cache", "value_cache"),
        refuses=is_not_causal,
    ),
)
def sdpa_with_kv_cache(
    q: LiveTensor,
    k: LiveTensor,
    v: LiveTensor,
    key_cache: LiveTensor,
    value_cache: LiveTensor,
    start_pos: LiveInt,
    seq_len: Unused,
    mask: LiveTensor | None,
    dropout: float,
    is_causal: bool,
    scale: float | None,
    out: LiveTensor,
) -> list[Route]:
    return _updating_attention(
        q, k, v, key_cache, value_cache, start_pos, mask, dropout, is_causal, scale, None, None, out
    )


@op(
    "pteron.sdpa_with_kv_cache.default",
    mutates=["key_cache", "value_cache"],
    uniforms=["start_pos"],
    work=windowed_sdpa_work,
    rows=Segmented(
        "pteron.segmented_windowed_sdpa",
        at="start_pos",
        rows=("q", "k", "v"),
        caches=("key_cache", "value_cache"),
        refuses=is_not_causal,
    ),
)
def windowed_sdpa_with_kv_cache(
    q: LiveTensor,
    k: LiveTensor,
    v: LiveTensor,
    key_cache: LiveTensor,
    value_cache: LiveTensor,
    start_pos: LiveInt,
    seq_len: Unused,
    mask: LiveTensor | None,
    dropout: float,
    is_causal: bool,
    scale: float | None,
    window: int | None,
    softcap: float | None,
    out: LiveTensor,
) -> list[Route]:
    """As ExecuTorch's operator, with a sliding window and soft-capping."""
    return _updating_attention(
        q, k, v, key_cache, value_cache, start_pos, mask, dropout, is_causal, scale, window, softcap, out
    )


def _updating_attention(
    q: LiveTensor,
    k: LiveTensor,
    v: LiveTensor,
    key_cache: LiveTensor,
    value_cache: LiveTensor,
    start_pos: LiveInt,
    *rest: Any,
) -> list[Route]:
    """Store this call's keys and values in the caches. Then `cached_attention`, which takes the rest."""
    check(
        q.rank == k.rank == v.rank == 4 and q.shape[1] == k.shape[1] == v.shape[1],
        "query, key and value must have the same length",
    )
    updates = [cache_update(k, key_cache, start_pos), cache_update(v, value_cache, start_pos)]
    routes = cached_attention(q, key_cache, value_cache, start_pos, *rest)
    return [replace(route, dispatches=[*updates, *route.dispatches]) for route in routes]


def cached_attention(
    q: LiveTensor,
    key_cache: LiveTensor,
    value_cache: LiveTensor,
    start_pos: LiveInt,
    mask: LiveTensor | None,
    dropout: float,
    is_causal: bool,
    scale: float | None,
    window: int | None,
    softcap: float | None,
    out: LiveTensor,
) -> list[Route]:
    """Attention over caches that already contain the tokens of this call.

    With a mask, a query sees all keys of the caches, and the position means nothing. Without one, it sees the
    keys up to the last token of this call, or up to its own if `is_causal`.
    """
    check_dropout(dropout)
    check_causality(mask, is_causal)
    return attention(
        q,
        key_cache,
        value_cache,
        out,
        sequence_first,
        start_pos=start_pos,
        causal=is_causal,
        context=None if mask is None else key_cache.shape[1],
        mask=mask,
        scale=scale,
        window=window,
        softcap=softcap,
    )


def check_dropout(dropout: float) -> None:
    check(dropout == 0, f"dropout must be 0 at run time, not {dropout}: export the model with .eval()")


def check_causality(mask: LiveTensor | None, is_causal: bool) -> None:
    check(mask is None or not is_causal, "is_causal and a mask cannot be combined: add causality to the mask")


@op(
    "custom_sdpa.default",
    "et_vk.gemma4_sdpa.default",  # always with a mask
    uniforms=["start_pos"],
    work=_custom_sdpa_work,
    rows=Segmented(
        "pteron.segmented_custom_sdpa",
        at="start_pos",
        rows=("q",),
        caches=("k", "v"),
        refuses=is_not_causal,
    ),
)
def custom_sdpa(
    q: LiveTensor,
    k: LiveTensor,
    v: LiveTensor,
    start_pos: LiveInt,
    mask: LiveTensor | None,
    dropout: float,
    is_causal: bool,
    scale: float | None,
    out: LiveTensor,
) -> list[Route]:
    if mask is None:
        check(q.rank == k.rank == 4, "query and key must have 4 dimensions")
        length, capacity = q.shape[1], k.shape[1]
        start_pos.require(
            0,
            capacity - length,
            f"position {{value}} plus {length} tokens is beyond the {capacity} positions of the keys",
        )
    return cached_attention(q, k, v, start_pos, mask, dropout, is_causal, scale, None, None, out)


@op("et_vk.sdpa.default", work=_sdpa_work)
def sdpa(
    q: LiveTensor, k: LiveTensor, v: LiveTensor, mask: LiveTensor | None, scale: float | None, out: LiveTensor
) -> list[Route]:
    check(k.rank == 4, f"key must have 4 dimensions, not shape {describe(k.shape)}")
    start = LiveInt(0, 0, [])
    context = heads_first(k.shape).length
    return attention(
        q, k, v, out, heads_first, start_pos=start, causal=False, context=context, mask=mask, scale=scale
    )
