"""Operators that read a position or a KV cache, for the rows of several sequences in one call.

Each is the twin of an operator for one sequence (see `ir.row_rules`). In the place of the position it
takes tables with an entry for each row: the position of the row in its sequence, and the sequence's slot. KV
caches have a slot for each sequence: [slots, capacity, heads, width].

Attention has two kernels, for rows in short segments such as decode steps, and for rows in long segments. The
tables say which rows are for which. So one dispatch of each computes any mixture of segments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from pteron.compiler.ir.extensions import more_routes
from pteron.compiler.ir.rule import (
    GPU,
    Dispatch,
    LiveArguments,
    LiveInt,
    LiveTensor,
    Route,
    Unused,
    Work,
    WorkRule,
    check,
    describe,
    first_rows,
    numel,
    op,
    quads,
    threads,
)
from pteron.compiler.ops.attention import check_dropout
from pteron.compiler.ops.attention_routes import (
    FLASH_TILE,
    Heads,
    Operands,
    attention_operands,
    flash_dispatch,
    general_dispatches,
    sequence_first,
    split_dispatches,
    suits_tiles,
)
from pteron.compiler.ops.rope import rotation

At: TypeAlias = tuple[LiveTensor, LiveTensor, LiveTensor, LiveTensor]


class RowTables(NamedTuple):
    """The tables of a call with S rows. All contain int32."""

    slots: LiveTensor  # [S]
    positions: LiveTensor  # [S]
    few: LiveTensor  # [n]: the rows of short segments
    tiles: LiveTensor  # [m, 2]: the first row and the number of rows of each tile of a long segment

    def check(self, x: LiveTensor, cache: LiveTensor | None = None) -> None:
        """Refuse rows that do not fit x [1, S, ...], and places that are not in the caches."""
        check(
            x.rank >= 2 and x.shape[0] == 1 and (x.shape[1],) == self.slots.shape == self.positions.shape,
            f"the tables of {self.slots.shape[0]} rows do not fit the shape {describe(x.shape)}",
        )
        if cache is not None:
            self.slots.require_contents(0, cache.shape[0] - 1, "a slot")
            self.positions.require_contents(0, cache.shape[1] - 1, "a position in the KV cache")


def cache_rows(value: LiveTensor, cache: LiveTensor, at: At) -> Dispatch:
    """Write each row of a value [1, S, H, D] to its place in the caches."""
    tables = RowTables(*at)
    tables.check(value, cache)
    row = numel(cache.shape[2:])
    check(
        value.shape[2:] == cache.shape[2:] and row % 4 == 0,
        f"rows of shape {describe(value.shape[2:])} do not fit a cache of shape {describe(cache.shape)}",
    )
    bindings = {"x": value, "cache": cache, "slots": tables.slots, "positions": tables.positions}
    count = quads(value.numel)
    params = {"quads": count, "row_quads": row // 4, "capacity": cache.shape[1]}
    return Dispatch("cache_rows", bindings, params, threads(count))


@dataclass(frozen=True, slots=True)
class SegmentedAttention:
    """The attention of several sequences, for extensions."""

    few: Operands  # the rows of short segments
    long: Operands  # the tiles of long segments
    largest: tuple[Heads, Heads]


def segmented_attention(
    q: LiveTensor,
    keys: LiveTensor,
    values: LiveTensor,
    at: At,
    dropout: float,
    scale: float | None,
    window: int | None,
    softcap: float | None,
    out: LiveTensor,
) -> list[Route]:
    """Each row of q attends to the keys of its slot, up to its position."""
    check_dropout(dropout)
    tables = RowTables(*at)
    tables.check(q, keys)
    start = LiveInt(0, 0, [])
    layouts = sequence_first, sequence_first
    plain = attention_operands(q, keys, values, out, layouts, start, True, 0, scale, window, softcap)
    rows = replace(
        plain,
        bindings={**plain.bindings, "slots": tables.slots, "positions": tables.positions},
        params={**plain.params, "q_batch": 0},
        defines={**plain.defines, "SEGMENTED": True},
    )
    few = _part(rows, "few", tables.few, 1, tables.few.shape[0])
    long = _part(rows, "tiles", tables.tiles, tables.tiles.shape[0], FLASH_TILE)
    largest = replace(sequence_first(q.max_shape), length=tables.few.max_shape[0])
    most = largest, sequence_first(keys.max_shape)
    routes = []
    if suits_tiles(plain):
        dispatches = [*split_dispatches(few, few, most), flash_dispatch(long)]
        routes.append(Route("split and flash", dispatches, target=GPU))
    routes += more_routes(SegmentedAttention(few, long, most))
    return [*routes, Route("any", general_dispatches(rows, out))]


def _part(rows: Operands, name: str, table: LiveTensor, batch: int, length: int) -> Operands:
    """The operands of the kernels that compute the rows of one table."""
    return replace(
        rows,
        bindings={**rows.bindings, name: table},
        params={**rows.params, "batch": batch, "length": length},
        queries=replace(rows.queries, batch=batch, length=length),
    )


def attention_work(keys: str, values: str) -> WorkRule:
    """Estimate the work with half-full caches: the positions are known only on the GPU."""

    def work(call: LiveArguments) -> Work:
        q, cache = call["q"], call[keys]
        parts = {name: first_rows(call[name], q.shape[1]) // 2 for name in (keys, values)}
        return Work(2 * q.numel * cache.shape[1], parts)

    return work


CACHED = attention_work("key_cache", "value_cache")


@op("pteron.segmented_update_cache", mutates=["cache"])
def segmented_update_cache(value: LiveTensor, cache: LiveTensor, at: At, out: LiveTensor | None) -> Dispatch:
    return cache_rows(value, cache, at)


@op("pteron.segmented_sdpa_with_kv_cache", mutates=["key_cache", "value_cache"], work=CACHED)
def segmented_sdpa_with_kv_cache(
    q: LiveTensor,
    k: LiveTensor,
    v: LiveTensor,
    key_cache: LiveTensor,
    value_cache: LiveTensor,
    at: At,
    seq_len: Unused,
    mask: None,
    dropout: float,
    is_causal: bool,
    scale: float | None,
    out: LiveTensor,
) -> list[Route]:
    return segmented_windowed_sdpa(  # type: ignore[no-any-return]
        q, k, v, key_cache, value_cache, at, seq_len, mask, dropout, is_causal, scale, None, None, out
    )


@op("pteron.segmented_windowed_sdpa", mutates=["key_cache", "value_cache"], work=CACHED)
def segmented_windowed_sdpa(
    q: LiveTensor,
    k: LiveTensor,
    v: LiveTensor,
    key_cache: LiveTensor,
    value_cache: LiveTensor,
    at: At,
    seq_len: Unused,
    mask: None,
    dropout: float,
    is_causal: bool,
    scale: float | None,
    window: int | None,
    softcap: float | None,
    out: LiveTensor,
) -> list[Route]:
    stored = [cache_rows(k, key_cache, at), cache_rows(v, value_cache, at)]
    routes = segmented_attention(q, key_cache, value_cache, at, dropout, scale, window, softcap, out)
    return [replace(route, dispatches=[*stored, *route.dispatches]) for route in routes]


@op("pteron.segmented_custom_sdpa", work=attention_work("k", "v"))
def segmented_custom_sdpa(
    q: LiveTensor,
    k: LiveTensor,
    v: LiveTensor,
    at: At,
    mask: None,
    dropout: float,
    is_causal: bool,
    scale: float | None,
    out: LiveTensor,
) -> list[Route]:
    return segmented_attention(q, k, v, at, dropout, scale, None, None, out)


@op("pteron.segmented_rotary_emb_hf")
def segmented_rotary_emb_hf(
    xq: LiveTensor, xk: LiveTensor, cos: LiveTensor, sin: LiveTensor, at: At, outs: Sequence[LiveTensor]
) -> list[Dispatch]:
    return [rotate_rows(x, xq, xk, cos, sin, at, out) for x, out in zip((xq, xk), outs, strict=True)]


def rotate_rows(
    x: LiveTensor,
    xq: LiveTensor,
    xk: LiveTensor,
    cos: LiveTensor,
    sin: LiveTensor,
    at: At,
    out: LiveTensor,
) -> Dispatch:
    """Rotate x, which is xq or xk: each row with the row of the tables at its position."""
    tables = RowTables(*at)
    tables.check(x)
    check(cos.rank == 2, f"the frequency table must be [positions, R], not {describe(cos.shape)}")
    tables.positions.require_contents(0, cos.shape[0] - 1, "a row of the frequency table")
    turned = rotation(xq, xk, cos, sin, LiveInt(0, 0, [])).of(x, out)
    return replace(
        turned,
        bindings={**turned.bindings, "positions": tables.positions},
        defines={**turned.defines, "SEGMENTED": True},
    )


def rotate_into_caches(
    q: LiveTensor,
    k: LiveTensor,
    v: LiveTensor,
    cos: LiveTensor,
    sin: LiveTensor,
    row: At | None,
    key_cache: LiveTensor,
    value_cache: LiveTensor,
    at: At,
    turned: LiveTensor,
) -> list[Dispatch]:
    """Rotate q, and rotate k into its caches. v is copied to its caches. For `row` see the caller."""
    tables = RowTables(*at)
    tables.check(k, key_cache)
    tables.check(v, value_cache)
    turn = rotation(q, k, cos, sin, None if row is None else LiveInt(0, 0, []))
    rotated_q = turn.of(q, turned) if row is None else rotate_rows(q, q, k, cos, sin, row, turned)
    count = quads(k.numel)
    stored = Dispatch(
        "rope_cache_rows",
        {
            "k": k,
            "v": v,
            "cos_table": cos,
            "sin_table": sin,
            "key_cache": key_cache,
            "value_cache": value_cache,
            "slots": tables.slots,
            "positions": tables.positions,
        },
        {
            "quads": count,
            "heads": k.shape[2],
            "width": k.shape[3],
            "capacity": key_cache.shape[1],
            **turn.params,
        },
        threads(count),
        {**turn.defines, "GATHERED": row is None},
    )
    return [rotated_q, stored]
