"""Rotary position embeddings, in the three forms of ExecuTorch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pteron.compiler.ir.rule import (
    Bound,
    Define,
    Dispatch,
    LiveArguments,
    LiveInt,
    LiveTensor,
    MixesRows,
    Number,
    RowArguments,
    RowWise,
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


@dataclass(frozen=True, slots=True)
class Rotation:
    """How the elements of a head are rotated."""

    cos: LiveTensor  # tables: a row for each position
    sin: LiveTensor
    start: LiveInt  # the first row
    rotated: int  # the number of elements of a head that are rotated
    halves: bool  # rotated pairs are (i, i + D/2); otherwise neighbours (2i, 2i + 1)
    in_quads: bool  # four neighbours have four neighbours as partners, or are two pairs

    @property
    def axis(self) -> int:
        """The dimension S of x. x is [B, S, H, D], or [B, H, S, D] if the table has a batch dimension."""
        return self.cos.rank - 1

    @property
    def bindings(self) -> dict[str, Bound]:
        return {"cos_table": self.cos, "sin_table": self.sin, "start": self.start}

    @property
    def params(self) -> dict[str, Number]:
        return {"table": self.cos.shape[-1], "rotated": self.rotated}

    @property
    def defines(self) -> dict[str, Define]:
        return {"HALVES": self.halves, "IN_QUADS": self.in_quads, "SEGMENTED": False}

    def of(self, x: LiveTensor, out: LiveTensor) -> Dispatch:
        """Rotate the heads of x."""
        out.resize(x.shape)
        count = quads(x.numel)
        own_table = self.cos.rank == 3 and self.cos.shape[0] > 1
        params = {
            "quads": count,
            "width": x.shape[3],
            "inner": numel(x.shape[self.axis + 1 : 3]),
            "length": x.shape[self.axis],
            "batch": max(1, x.shape[1] * x.shape[2]),
            "apart": self.cos.shape[1] if own_table else 0,
            **self.params,
        }
        return Dispatch("rope", {"x": x, "y": out, **self.bindings}, params, threads(count), self.defines)


def rotation(
    xq: LiveTensor, xk: LiveTensor, cos: LiveTensor, sin: LiveTensor, start_pos: LiveInt | None
) -> Rotation:
    """With a start position, halves are rotated and the first table row is start_pos.

    Without a start position, neighbours are rotated and the first table row is 0.
    """
    check(
        xq.rank == xk.rank == 4, f"q {describe(xq.shape)} and k {describe(xk.shape)} must have 4 dimensions"
    )
    check(
        cos.shape == sin.shape,
        f"cos {describe(cos.shape)} and sin {describe(sin.shape)} must have the same shape",
    )
    halves = start_pos is not None
    check(
        cos.rank == 2 or (halves and cos.rank == 3 and cos.shape[0] in (1, xq.shape[0])),
        f"the frequency table must be [positions, R]{' or [batch, positions, R]' if halves else ''}, "
        f"not {describe(cos.shape)} for q {describe(xq.shape)}",
    )
    axis = cos.rank - 1
    length, width = xq.shape[axis], xq.shape[3]
    check(
        length == xk.shape[axis] and width == xk.shape[3],
        f"q {describe(xq.shape)} and k {describe(xk.shape)} must agree in length and head size",
    )
    rows, columns = cos.shape[-2:]
    # The kernel depends on these sizes, and a kernel is compiled once for all live shapes.
    check(
        width == xq.max_shape[3] and columns == cos.max_shape[-1],
        f"the head size is {xq.max_shape[3]} and the frequency table has {cos.max_shape[-1]} columns, and "
        f"both cannot vary: got {width} and {columns}",
    )
    check(rows >= length, f"the frequency table has {rows} rows for {length} live positions")
    if start_pos is None:
        check(
            width % 2 == 0 and 2 * columns == width,
            f"the frequency table {describe(cos.shape)} must have half as many columns as a head has "
            f"elements, {width}",
        )
        return Rotation(cos, sin, LiveInt(0, 0, []), width, halves=False, in_quads=width % 4 == 0)
    check(
        columns % 2 == 0 and columns <= width,
        f"the frequency table has {columns} columns: it must be even and at most the head size {width}",
    )
    start_pos.require(
        0,
        rows - length,
        f"the frequency table has {rows} rows: position {{value}} plus {length} tokens is beyond its end",
    )
    return Rotation(cos, sin, start_pos, columns, halves=True, in_quads=width % 4 == 0 and columns % 8 == 0)


def _work(call: LiveArguments) -> Work:
    return Work(parts=table_rows(call, call["xq"].shape[1]))


def table_rows(call: LiveArguments, length: int) -> dict[str, int]:
    """The bytes of the table rows for `length` positions."""
    return {name: first_rows(call[name], length) for name in ("cos", "sin")}


def _rotated_rows(call: RowArguments) -> int:
    """q and k are [1, S, H, D]. The tables have a row for each of S, too."""
    call.only("xq", "xk", "cos", "sin")
    dims = [call.dim(name) for name in ("xq", "xk", "cos", "sin")]
    if dims != [1, 1, 0, 0]:
        raise MixesRows("its inputs are not [1, S, H, D] with tables [S, R]")
    return 1


@op("et_vk.apply_rotary_emb.default", work=_work, rows=RowWise(_rotated_rows))
def apply_rotary_emb(
    xq: LiveTensor, xk: LiveTensor, cos: LiveTensor, sin: LiveTensor, outs: Sequence[LiveTensor]
) -> list[Dispatch]:
    turn = rotation(xq, xk, cos, sin, None)
    return [turn.of(xq, outs[0]), turn.of(xk, outs[1])]


@op(
    "et_vk.apply_rotary_emb_hf.default",
    uniforms=["start_pos"],
    work=_work,
    rows=Segmented("pteron.segmented_rotary_emb_hf", at="start_pos", rows=("xq", "xk")),
)
def apply_rotary_emb_hf(
    xq: LiveTensor,
    xk: LiveTensor,
    cos: LiveTensor,
    sin: LiveTensor,
    start_pos: LiveInt,
    outs: Sequence[LiveTensor],
) -> list[Dispatch]:
    """Rotate the first elements of a head, as many as the table has columns, in halves."""
    turn = rotation(xq, xk, cos, sin, start_pos)
    return [turn.of(xq, outs[0]), turn.of(xk, outs[1])]


@op("et_vk.apply_rotary_emb_hf_single.default", uniforms=["start_pos"])
def apply_rotary_emb_hf_single(
    x: LiveTensor, cos: LiveTensor, sin: LiveTensor, start_pos: LiveInt, out: LiveTensor
) -> Dispatch:
    """Only queries: layers that read the KV cache of another layer have no keys."""
    return rotation(x, x, cos, sin, start_pos).of(x, out)


@op("et_vk.apply_rotary_emb_interleaved.default")
def apply_rotary_emb_interleaved(x: LiveTensor, freqs: LiveTensor, out: LiveTensor) -> Dispatch:
    """x is [B, N, C]. freqs has N * C elements, in (cos, sin) pairs, and any rank."""
    check(x.rank == 3 and x.shape[2] % 2 == 0, f"x must be [B, N, C] with an even C, not {describe(x.shape)}")
    row = x.shape[1] * x.shape[2]
    is_table = freqs.rank == 2 and freqs.shape[1] == x.shape[2]  # a table may have more rows than x
    check(
        freqs.numel == row or (is_table and freqs.numel > row),
        f"frequencies {describe(freqs.shape)} do not cover x {describe(x.shape)}",
    )
    out.resize(x.shape)
    params = {"quads": quads(x.numel), "row": row}
    return Dispatch("rope_pairs", {"x": x, "freqs": freqs, "y": out}, params, threads(quads(x.numel)))
