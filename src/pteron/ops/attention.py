"""Attention: with a KV cache, without one, and with a mask.

The position is a uniform, so a decode step changes it without a new plan. The kernels are in
`attention_routes`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pteron.ir.rule import (
    GPU,
    SOFTWARE,
    SUBGROUP,
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
from pteron.ops.attention_routes import (
    FEW_QUERIES,
    Layout,
    attention_operands,
    decode_dispatches,
    flash_dispatch,
    general_dispatches,
    heads_first,
    sequence_first,
    split_dispatches,
    suits_decode,
    suits_tiles,
    tile_dispatch,
)
from pteron.ops.shapes import broadcast_strides
from pteron.ops.writes import cache_update


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
        _check_mask_covers(mask, queries.length, start_pos, context)
        strides = _mask_strides(mask, (queries.batch, queries.heads, queries.length), keys.length)
        one = all(size == 1 for size in mask.max_shape[-3:-1])  # for all heads and queries of a batch
        kind = {
            "HAS_MASK": True,
            "MASK_IS_BOOL": mask.dtype.label == "bool",
            "ONE_MASK": one,
            "MASK_PER_ROW": not one,
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
    routes = []
    if suits_tiles(plain):
        routes += [
            Route("split", split_dispatches(plain, masked, most), when=are_few, home=GPU),
            Route("flash", [flash_dispatch(masked)], home=GPU),
        ]
    if mask is None and suits_decode(plain, q, out):
        shares_alike = queries.heads * most[1].heads == keys.heads * most[0].heads
        fits = are_few and shares_alike
        routes.append(
            Route("decode", decode_dispatches(plain, most), when=fits, needs=SUBGROUP, home=SOFTWARE)
        )
    if suits_tiles(plain):
        routes.append(Route("tile", [tile_dispatch(masked)], needs=SUBGROUP, home=SOFTWARE))
    return [*routes, Route("any", general_dispatches(masked, out))]


def _check_mask_covers(mask: LiveTensor, length: int, start_pos: LiveInt, context: int | None) -> None:
    """A mask must have a column for every key, unless it has one for all."""
    if mask.shape[-1:] == (1,):
        return
    seen = mask.shape[-1] if mask.rank else 1
    if context is None:
        message = f"position {{value}} is beyond the {seen} keys that the mask covers"
        start_pos.require(0, seen - length, message)
    else:
        check(seen == context, f"mask {describe(mask.shape)} does not cover {context} keys")


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


def has_mask(call: RowArguments) -> str | None:
    """Why the rows of several sequences cannot be computed together."""
    return None if call["mask"] is None else "its mask is for the positions of one sequence"


def _cached_work(call: LiveArguments, causal: bool, window: int | None, *caches: str) -> Work:
    """Only the visible rows of the caches are read. A query and a key need two multiply-adds per element."""
    batch, length, heads, width = call["q"].shape
    end = (call["start_pos"] or 0) + length
    seen = end if window is None else min(end, window + length - 1)
    pairs = length * end
    if causal:
        pairs = sum(min(last, window or last) for last in range(end - length + 1, end + 1))
    rows = {name: first_rows(call[name], seen, dim=1) for name in caches}
    return Work(4 * batch * heads * width * pairs, rows)


def sdpa_with_kv_cache_work(call: LiveArguments, window: int | None = None) -> Work:
    causal = call["is_causal"] or call["mask"] is None
    return _cached_work(call, causal, window, "key_cache", "value_cache")


def windowed_sdpa_work(call: LiveArguments) -> Work:
    return sdpa_with_kv_cache_work(call, call["window"])


def _custom_sdpa_work(call: LiveArguments) -> Work:
    return _cached_work(call, call["is_causal"], None, "k", "v")


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
        refuses=has_mask,
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
        refuses=has_mask,
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
    """Attention over caches that already contain the tokens of this call. Causal, unless there is a mask."""
    check_dropout(dropout)
    causal = is_causal or mask is None
    return attention(
        q,
        key_cache,
        value_cache,
        out,
        sequence_first,
        start_pos=start_pos,
        causal=causal,
        mask=mask,
        scale=scale,
        window=window,
        softcap=softcap,
    )


def check_dropout(dropout: float) -> None:
    check(dropout == 0, f"dropout must be 0 at run time, not {dropout}: export the model with .eval()")


@op(
    "custom_sdpa.default",
    uniforms=["start_pos"],
    work=_custom_sdpa_work,
    rows=Segmented(
        "pteron.segmented_custom_sdpa",
        at="start_pos",
        rows=("q",),
        caches=("k", "v"),
        refuses=lambda call: has_mask(call) or (None if call["is_causal"] else "it is not causal"),
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
    check_dropout(dropout)
    length, capacity = q.shape[1], k.shape[1]
    start_pos.require(
        0,
        capacity - length,
        f"position {{value}} plus {length} tokens is beyond the {capacity} positions of the keys",
    )
    return attention(
        q, k, v, out, sequence_first, start_pos=start_pos, causal=is_causal, mask=mask, scale=scale
    )


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
