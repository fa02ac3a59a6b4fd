"""Rotary position embeddings, in the three forms that ExecuTorch knows."""

from __future__ import annotations

from collections.abc import Sequence

from pteron.graph.dispatch import Bound, Dispatch, describe, quads, threads
from pteron.graph.live import LiveInt, LiveTensor
from pteron.graph.op import check, op

# Which element an element is rotated with, and the sign of that partner's share.
INTERLEAVED = """
fn partner(c: u32) -> u32 { return c ^ 1u; }
fn is_first(c: u32) -> bool { return (c & 1u) == 0u; }
fn frequency(c: u32) -> u32 { return c / 2u; }
"""
HALVES = """
fn partner(c: u32) -> u32 { return select(c - p.turned / 2u, c + p.turned / 2u, c < p.turned / 2u); }
fn is_first(c: u32) -> bool { return c < p.turned / 2u; }
fn frequency(c: u32) -> u32 { return c; }
"""


def rotate(
    x: LiveTensor,
    cos: LiveTensor,
    sin: LiveTensor,
    start: LiveInt,
    out: LiveTensor,
    turned: int,
    pairing: str,
) -> Dispatch:
    """Rotate the first `turned` elements of each head of [B, S, H, D] by the frequencies of row start + s."""
    out.resize(x.shape)
    params = {
        "quads": quads(x.numel),
        "width": x.shape[3],
        "heads": x.shape[2],
        "length": x.shape[1],
        "table": cos.shape[-1],
        "turned": turned,
    }
    bindings: dict[str, Bound] = {"x": x, "cos_table": cos, "sin_table": sin, "start": start, "y": out}
    return Dispatch("rope", bindings, params, threads(quads(x.numel)), code=pairing)


def check_pair(xq: LiveTensor, xk: LiveTensor, cos: LiveTensor, sin: LiveTensor) -> None:
    check(
        xq.rank == xk.rank == 4, f"q {describe(xq.shape)} and k {describe(xk.shape)} must have 4 dimensions"
    )
    check(
        xq.shape[1] == xk.shape[1] and xq.shape[3] == xk.shape[3],
        f"q {describe(xq.shape)} and k {describe(xk.shape)} must agree in length and head size",
    )
    check(xq.shape[3] % 2 == 0, f"the head size must be even, not {xq.shape[3]}")
    check(
        cos.shape == sin.shape, f"cos {describe(cos.shape)} and sin {describe(sin.shape)} must have one shape"
    )
    check(cos.rank == 2, f"the frequency table must have 2 dimensions, not shape {describe(cos.shape)}")


@op("et_vk.apply_rotary_emb.default")
def apply_rotary_emb(
    xq: LiveTensor, xk: LiveTensor, cos: LiveTensor, sin: LiveTensor, outs: Sequence[LiveTensor]
) -> list[Dispatch]:
    check_pair(xq, xk, cos, sin)
    length, width = xq.shape[1], xq.shape[3]
    check(
        2 * cos.shape[1] == width,
        f"the frequency table has shape {describe(cos.shape)}, but rows of {width // 2} are needed",
    )
    check(cos.shape[0] >= length, f"the frequency table has {cos.shape[0]} rows for {length} live positions")
    start = LiveInt(0, 0, [])
    return [
        rotate(xq, cos, sin, start, outs[0], width, INTERLEAVED),
        rotate(xk, cos, sin, start, outs[1], width, INTERLEAVED),
    ]


@op("et_vk.apply_rotary_emb_hf.default", uniforms=["start_pos"])
def apply_rotary_emb_hf(
    xq: LiveTensor,
    xk: LiveTensor,
    cos: LiveTensor,
    sin: LiveTensor,
    start_pos: LiveInt,
    outs: Sequence[LiveTensor],
) -> list[Dispatch]:
    """Halves of the first elements of a head, as many as the table is wide, turn into each other."""
    check_pair(xq, xk, cos, sin)
    length, (rows, turned) = xq.shape[1], cos.shape
    check(
        turned % 2 == 0 and turned <= xq.shape[3],
        f"the frequency table turns {turned} elements of heads that have {xq.shape[3]}",
    )
    check(rows >= length, f"the frequency table has {rows} rows for {length} live positions")
    start_pos.require(
        0,
        rows - length,
        f"the frequency table has {rows} rows: position {{value}} plus {length} tokens runs past its end",
    )
    return [
        rotate(xq, cos, sin, start_pos, outs[0], turned, HALVES),
        rotate(xk, cos, sin, start_pos, outs[1], turned, HALVES),
    ]


@op("et_vk.apply_rotary_emb_interleaved.default")
def apply_rotary_emb_interleaved(x: LiveTensor, freqs: LiveTensor, out: LiveTensor) -> Dispatch:
    """x [B, N, C] with freqs [N, C] that hold (cos, sin) pairs."""
    check(x.rank == 3 and x.shape[2] % 2 == 0, f"x must be [B, N, C] with an even C, not {describe(x.shape)}")
    check(
        freqs.rank == 2 and freqs.shape[0] >= x.shape[1] and freqs.shape[1] == x.shape[2],
        f"frequencies {describe(freqs.shape)} do not cover x {describe(x.shape)}",
    )
    out.resize(x.shape)
    params = {"quads": quads(x.numel), "row": x.shape[1] * x.shape[2]}
    return Dispatch("rope_pairs", {"x": x, "freqs": freqs, "y": out}, params, threads(quads(x.numel)))
