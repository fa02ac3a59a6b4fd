"""Attention over quantized queries, keys and values: a KV cache of int8 codes.

Codes become floats in temporary memory, which all layers share. Then the kernels of attention compute as for
floats. Keys that no query sees are left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pteron.compiler.ir.rule import (
    Bound,
    Dispatch,
    LiveArguments,
    LiveInt,
    LiveTensor,
    Route,
    RowArguments,
    Scratch,
    Segmented,
    Work,
    check,
    describe,
    first_rows,
    numel,
    op,
    quads,
    threads,
)
from pteron.compiler.ops.attention import attention, check_causality, check_dropout, is_not_causal
from pteron.compiler.ops.attention_routes import heads_first, sequence_first
from pteron.compiler.ops.segmented import At, segmented_attention

CODES = ("k_zeros", "k_scales", "v_zeros", "v_scales")


def decoded(
    name: str,
    codes: LiveTensor,
    scales: LiveTensor,
    zeros: LiveTensor,
    *,
    seen: tuple[LiveInt, int] | None = None,
    position: int = 1,
) -> tuple[Scratch, Dispatch]:
    """The floats of codes with a scale and a zero point for each row.

    seen: a position and a number of tokens; rows after the last of these tokens are left out. position: the
    dimension of the codes that is the position.
    """
    width = codes.shape[-1]
    for what, given in {"scales": scales, "zero points": zeros}.items():
        check(
            given.shape == (*codes.shape[:-1], 1),
            f"{what} of the {name} have shape {describe(given.shape)}, the codes {describe(codes.shape)}",
        )
    start, length = seen or (LiveInt(0, 0, []), 0)
    floats = Scratch(name, 4 * (numel(codes.max_shape) + 4))
    count = quads(codes.numel)
    params = {
        "quads": count,
        "width": width,
        "inner": numel(codes.shape[position + 1 :]),
        "capacity": codes.shape[position],
        "length": length,
    }
    bindings: dict[str, Bound] = {
        "x": codes,
        "scales": scales,
        "zeros": zeros,
        "y": floats,
        "start_pos": start,
    }
    defines = {"FROM_POSITION": seen is not None}
    return floats, Dispatch("decode_rows", bindings, params, threads(count), defines)


def _with_floats(routes: Iterable[Route], operands: dict[str, tuple[Scratch, Dispatch]]) -> list[Route]:
    """The routes of attention, with floats in the place of the codes."""
    before = [dispatch for _, dispatch in operands.values()]
    floats = {name: scratch for name, (scratch, _) in operands.items()}

    def rebound(dispatch: Dispatch) -> Dispatch:
        kept = {name: floats.get(name, bound) for name, bound in dispatch.bindings.items()}
        return replace(dispatch, bindings=kept)

    return [replace(route, dispatches=[*before, *map(rebound, route.dispatches)]) for route in routes]


def _work(call: LiveArguments) -> Work:
    """Codes of the visible rows are read. The traffic of their floats is not counted."""
    batch, length, heads, width = call["q"].shape
    end = (call["start_pos"] or 0) + length if call["mask"] is None else call["k"].shape[1]
    parts = {name: first_rows(call[name], end, dim=1) for name in ("k", "v", *CODES)}
    return Work(4 * batch * heads * width * length * end, parts)


def _segmented_work(call: LiveArguments) -> Work:
    return Work(2 * call["q"].numel * call["k"].shape[1])


def _refusal(call: RowArguments) -> str | None:
    return "its sequence is in dimension 2" if call["is_seq_at_dim_2"] else is_not_causal(call)


@op(
    "custom_quantized_sdpa.default",
    uniforms=["start_pos"],
    work=_work,
    rows=Segmented(
        "pteron.segmented_custom_quantized_sdpa",
        at="start_pos",
        rows=("q", "q_zeros", "q_scales"),
        caches=("k", "v", *CODES),
        refuses=_refusal,
    ),
)
def custom_quantized_sdpa(
    q: LiveTensor,
    k: LiveTensor,
    v: LiveTensor,
    start_pos: LiveInt,
    mask: LiveTensor | None,
    dropout: float,
    is_causal: bool,
    scale: float | None,
    q_zeros: LiveTensor,
    q_scales: LiveTensor,
    k_zeros: LiveTensor,
    k_scales: LiveTensor,
    v_zeros: LiveTensor,
    v_scales: LiveTensor,
    is_seq_at_dim_2: bool,
    out: LiveTensor,
) -> list[Route]:
    """As `custom_sdpa`, on codes. Scales and zero points have the shape of their codes, with one column."""
    check_dropout(dropout)
    check_causality(mask, is_causal)
    check(q.rank == k.rank == 4, "query and key must have 4 dimensions")
    position = 2 if is_seq_at_dim_2 else 1
    length, capacity = q.shape[position], k.shape[position]
    seen = None
    if mask is None:
        seen = start_pos, length
        start_pos.require(
            0,
            capacity - length,
            f"position {{value}} plus {length} tokens is beyond the {capacity} positions of the keys",
        )
    routes = attention(
        q,
        k,
        v,
        out,
        heads_first if is_seq_at_dim_2 else sequence_first,
        start_pos=start_pos,
        causal=is_causal,
        context=None if mask is None else capacity,
        mask=mask,
        scale=scale,
    )
    floats = {
        "q": decoded("queries", q, q_scales, q_zeros),
        "k": decoded("keys", k, k_scales, k_zeros, seen=seen, position=position),
        "v": decoded("values", v, v_scales, v_zeros, seen=seen, position=position),
    }
    return _with_floats(routes, floats)


@op("pteron.segmented_custom_quantized_sdpa", work=_segmented_work)
def segmented_custom_quantized_sdpa(
    q: LiveTensor,
    k: LiveTensor,
    v: LiveTensor,
    at: At,
    mask: None,
    dropout: float,
    is_causal: bool,
    scale: float | None,
    q_zeros: LiveTensor,
    q_scales: LiveTensor,
    k_zeros: LiveTensor,
    k_scales: LiveTensor,
    v_zeros: LiveTensor,
    v_scales: LiveTensor,
    is_seq_at_dim_2: bool,
    out: LiveTensor,
) -> list[Route]:
    floats = {
        "q": decoded("queries", q, q_scales, q_zeros),
        "k": decoded("keys", k, k_scales, k_zeros),
        "v": decoded("values", v, v_scales, v_zeros),
    }
    return _with_floats(segmented_attention(q, k, v, at, dropout, scale, None, None, out), floats)
