"""Attention: with a KV cache, without one, and with a mask. Scores are never stored.

Keys are walked with a running softmax, so memory does not grow with the context, and a position is a
uniform that a decode step moves without a new plan.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pteron.graph.dispatch import (
    SOFTWARE,
    SUBGROUP,
    Bound,
    Define,
    Dispatch,
    Number,
    Route,
    describe,
    fold,
    threads,
)
from pteron.graph.live import LiveInt, LiveTensor
from pteron.graph.op import check, op
from pteron.graph.values import Shape
from pteron.ops.elementwise import widened
from pteron.ops.matmul import all_float32
from pteron.ops.shapes import broadcast_strides
from pteron.ops.writes import cache_update

TILE = 16  # queries that a workgroup takes where there are many
FEW = 8  # below this, lanes are better spent on keys than on queries

# Quad d of the row of y that starts at element `first`. Only rows of whole quads own their words.
STORE_QUADS = "fn store(first: u32, d: u32, value: vec4<f32>) { y_put(first / 4u + d, y_t4(value)); }"
STORE_ELEMENTS = """
fn store(first: u32, d: u32, value: vec4<f32>) {
    let left = min(4u, WIDTH - 4u * d);
    for (var c = 0u; c < left; c++) { y_set(first + 4u * d + c, y_t(value[c])); }
}
"""


@dataclass(frozen=True, slots=True)
class Heads:
    """The four sizes of an attention operand, and the strides that find an element in it."""

    batch: int
    length: int
    heads: int
    width: int
    batch_stride: int
    length_stride: int
    head_stride: int


def sequence_first(shape: Shape) -> Heads:
    """[B, S, H, D]"""
    b, s, h, d = shape
    return Heads(b, s, h, d, s * h * d, h * d, d)


def heads_first(shape: Shape) -> Heads:
    """[B, H, S, D]"""
    b, h, s, d = shape
    return Heads(b, s, h, d, h * s * d, d, s * d)


def attention(
    q: LiveTensor,
    k: LiveTensor,
    v: LiveTensor,
    out: LiveTensor,
    layout: Any,
    *,
    start_pos: LiveInt,
    causal: bool,
    context: int | None = None,
    mask: LiveTensor | None = None,
    scale: float | None = None,
) -> list[Route]:
    """softmax(q k^T * scale + mask) v. `context` keys are visible; None: start_pos + S of them."""
    for name, x in (("query", q), ("key", k), ("value", v)):
        check(x.rank == 4, f"{name} must have 4 dimensions, not shape {describe(x.shape)}")
    queries, keys = layout(q.shape), layout(k.shape)
    check(
        queries.batch == keys.batch and queries.width == keys.width and k.shape == v.shape,
        f"query {describe(q.shape)}, key {describe(k.shape)} and value {describe(v.shape)} do not fit",
    )
    width, heads, shared = queries.width, queries.heads, keys.heads
    check(width == q.max_shape[-1], f"the head size is {q.max_shape[-1]} and cannot vary: got {width}")
    check(shared > 0 and heads % shared == 0, f"{heads} query heads cannot share {shared} key heads")
    if mask is not None and mask.shape[-1:] != (1,):
        seen = mask.shape[-1] if mask.rank else 1
        if context is None:
            start_pos.require(
                0,
                seen - queries.length,
                f"position {{value}} lies beyond the {seen} keys that the mask covers",
            )
        else:
            check(seen == context, f"mask {describe(mask.shape)} does not cover {context} keys")
    out.resize(q.shape)
    rows = queries.batch * heads * queries.length
    params = {
        "rows": rows,
        "length": queries.length,
        "heads": heads,
        "sharing": heads // shared,
        "context": context or 0,
        "scale": scale if scale is not None else 1 / math.sqrt(width),
        "q_batch": queries.batch_stride,
        "q_length": queries.length_stride,
        "q_head": queries.head_stride,
        "k_batch": keys.batch_stride,
        "k_length": keys.length_stride,
        "k_head": keys.head_stride,
        **_mask_strides(mask, (queries.batch, heads, queries.length), keys.length),
    }
    defines = {
        "WIDTH": width,
        "CAUSAL": causal,
        "FROM_POSITION": context is None,
        "HAS_MASK": mask is not None,
        "MASK_IS_BOOL": mask is not None and mask.dtype.label == "bool",
    }
    whole = width % 4 == 0
    y, narrowing = (out, []) if whole else widened(out)
    bindings: dict[str, Bound] = {"q": q, "k": k, "v": v, "mask": mask or q, "y": y, "start_pos": start_pos}
    code = STORE_QUADS if whole else STORE_ELEMENTS
    general = Route(
        "any", [Dispatch("attention", bindings, params, threads(rows), defines, code), *narrowing]
    )
    if mask is not None or width % 32 or not all_float32(q, k, v, out):
        return [general]
    return [*_subgroup_routes(queries, bindings, params, defines), general]


def _subgroup_routes(
    queries: Heads, bindings: Mapping[str, Bound], params: Mapping[str, Number], defines: Mapping[str, Define]
) -> list[Route]:
    """Without a mask: lanes share a query's keys where queries are few, a key's row where they are many."""
    rows = queries.batch * queries.heads * queries.length
    blocks = queries.batch * queries.heads * -(-queries.length // TILE)
    bound = {name: bindings[name] for name in ("q", "k", "v", "y", "start_pos")}
    kept = {name: value for name, value in params.items() if not name.startswith("mask_") and name != "rows"}
    kept["batch"] = queries.batch
    text = {name: defines[name] for name in ("WIDTH", "CAUSAL", "FROM_POSITION")}
    decode = Dispatch("attention_decode", bound, kept, fold(rows), text)
    tile = Dispatch("attention_tile", bound, kept, fold(blocks), {**text, "LANES": TILE})
    return [
        Route("decode", [decode], when=queries.length < FEW, needs=SUBGROUP, home=SOFTWARE),
        Route("tile", [tile], needs=SUBGROUP, home=SOFTWARE),
    ]


def _mask_strides(mask: LiveTensor | None, rows: Shape, keys: int) -> dict[str, int]:
    """Strides of a mask that broadcasts to [batch, heads, queries, keys]."""
    names = ("mask_batch", "mask_head", "mask_length", "mask_key")
    if mask is None:
        return dict.fromkeys(names, 0)
    check(mask.rank <= 4, f"mask must have at most 4 dimensions, not shape {describe(mask.shape)}")
    full = (1,) * (4 - mask.rank) + mask.shape
    for have, want in zip(full[:3], rows, strict=True):
        check(
            have in (1, want), f"mask {describe(mask.shape)} does not broadcast to {describe((*rows, keys))}"
        )
    return dict(zip(names, broadcast_strides(full, (*rows, max(full[3], keys))), strict=True))


@op(
    "sdpa_with_kv_cache.default",
    mutates=["key_cache", "value_cache"],
    uniforms=["start_pos"],
)
def sdpa_with_kv_cache(
    q: LiveTensor,
    k: LiveTensor,
    v: LiveTensor,
    key_cache: LiveTensor,
    value_cache: LiveTensor,
    start_pos: LiveInt,
    seq_len: Any,
    mask: LiveTensor | None,
    dropout: float,
    is_causal: bool,
    scale: float | None,
    out: LiveTensor,
) -> list[Route]:
    check(q.rank == 4 and k.rank == 4 and q.shape[1] == k.shape[1], "query and key must have the same length")
    check(dropout == 0, f"dropout must be 0 when a program runs, not {dropout}")
    updates = [cache_update(k, key_cache, start_pos), cache_update(v, value_cache, start_pos)]
    routes = attention(
        q,
        key_cache,
        value_cache,
        out,
        sequence_first,
        start_pos=start_pos,
        causal=is_causal or mask is None,
        mask=mask,
        scale=scale,
    )
    return [replace(route, dispatches=[*updates, *route.dispatches]) for route in routes]


@op("custom_sdpa.default", uniforms=["start_pos"])
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
    check(dropout == 0, f"dropout must be 0 when a program runs, not {dropout}")
    length, capacity = q.shape[1], k.shape[1]
    start_pos.require(
        0,
        capacity - length,
        f"position {{value}} plus {length} tokens lies beyond the {capacity} positions of the keys",
    )
    return attention(
        q, k, v, out, sequence_first, start_pos=start_pos, causal=is_causal, mask=mask, scale=scale
    )


@op("et_vk.sdpa.default")
def sdpa(
    q: LiveTensor, k: LiveTensor, v: LiveTensor, mask: LiveTensor | None, scale: float | None, out: LiveTensor
) -> list[Route]:
    check(k.rank == 4, f"key must have 4 dimensions, not shape {describe(k.shape)}")
    start = LiveInt(0, 0, [])
    context = heads_first(k.shape).length
    return attention(
        q, k, v, out, heads_first, start_pos=start, causal=False, context=context, mask=mask, scale=scale
    )
