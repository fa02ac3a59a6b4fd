"""roll and glu."""

from __future__ import annotations

from collections.abc import Sequence

from pteron.compiler.ir.integer_rules import moves
from pteron.compiler.ir.rule import (
    Dispatch,
    LiveTensor,
    Number,
    check,
    describe,
    numel,
    op,
    quads,
    rows_of,
    threads,
)
from pteron.compiler.ops.shapes import MAX_RANK, contiguous, dimension


@op("aten.roll.default", integers=moves("x"))
def roll(x: LiveTensor, shifts: Sequence[int], dims: Sequence[int], out: LiveTensor) -> Dispatch:
    """Without dims, x is rolled as one flat row."""
    shape = x.shape if dims else (x.numel,)
    check(
        len(shifts) == (len(dims) or 1),
        f"shifts {tuple(shifts)} and dims {tuple(dims)} must have the same length",
    )
    check(len(shape) <= MAX_RANK, f"x {describe(x.shape)} has more than {MAX_RANK} dimensions")
    moved = [0] * len(shape)
    for shift, dim in zip(shifts, dims or (0,), strict=True):
        moved[dimension(dim, len(shape))] += shift
    out.resize(x.shape)
    params: dict[str, Number] = {
        "quads": quads(x.numel),
        "rank": len(shape),
        "sizes": shape,
        "strides": contiguous(shape),
        "back": tuple(-shift % size if size else 0 for shift, size in zip(moved, shape, strict=True)),
    }
    return Dispatch("roll", {"x": x, "y": out}, params, threads(quads(x.numel)))


@op("aten.glu.default", rows=rows_of("x", mixes="dim"))
def glu(x: LiveTensor, dim: int, out: LiveTensor) -> Dispatch:
    """The first half of a dimension times the sigmoid of the second half."""
    d = dimension(dim, x.rank)
    check(x.rank > 0 and x.shape[d] % 2 == 0, f"dimension {dim} of x {describe(x.shape)} must be even")
    out.resize((*x.shape[:d], x.shape[d] // 2, *x.shape[d + 1 :]))
    params = {"quads": quads(out.numel), "half": numel(out.shape[d:])}
    return Dispatch("glu", {"x": x, "y": out}, params, threads(quads(out.numel)))
