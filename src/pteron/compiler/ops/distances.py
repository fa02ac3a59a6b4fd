"""Distances between the rows of two matrices, and between all pairs of rows of one matrix."""

from __future__ import annotations

import math

from pteron.compiler.ir.rule import Dispatch, LiveTensor, Number, check, describe, op, quads, threads
from pteron.compiler.ops.shapes import broadcast, broadcast_strides, merge

# For each norm: the new sum after an absolute difference `d`, and the distance that a sum gives.
NORMS = {
    0.0: ("sum + select(1.0, 0.0, d == 0.0)", "sum"),
    1.0: ("sum + d", "sum"),
    2.0: ("sum + d * d", "sqrt(sum)"),
    math.inf: ("select(sum, d, above(d, sum))", "sum"),
}
ANY_NORM = ("sum + pow(d, p.norm)", "pow(sum, 1.0 / p.norm)")


def norm_code(p: float) -> str:
    step, root = NORMS.get(p, ANY_NORM)
    return (
        f"fn add(sum: f32, d: f32) -> f32 {{ return {step}; }}\n"
        f"fn root(sum: f32) -> f32 {{ return {root}; }}\n"
    )


@op("aten._cdist_forward.default")
def cdist(x1: LiveTensor, x2: LiveTensor, p: float, compute_mode: int | None, out: LiveTensor) -> Dispatch:
    """out[.., i, j] = the p-norm of x1[.., i, :] - x2[.., j, :]. The leading dimensions broadcast."""
    check(
        x1.rank >= 2 and x2.rank >= 2 and x1.shape[-1] == x2.shape[-1],
        f"the rows of x1 {describe(x1.shape)} and x2 {describe(x2.shape)} must have the same length",
    )
    check(p >= 0, f"p must not be negative, not {p}")
    lead = broadcast(x1.shape[:-2], x2.shape[:-2])
    rows, columns, width = x1.shape[-2], x2.shape[-2], x1.shape[-1]
    out.resize((*lead, rows, columns))
    walks = [broadcast_strides(x.shape[:-2], lead) for x in (x1, x2)]
    sizes, (walk1, walk2) = merge(lead, *walks)
    params: dict[str, Number] = {
        "quads": quads(out.numel),
        "rows": rows,
        "columns": columns,
        "width": width,
        "norm": p if math.isfinite(p) else 0.0,
        "rank": len(sizes),
        "sizes": sizes,
        "a_strides": walk1,
        "b_strides": walk2,
    }
    grid = threads(quads(out.numel))
    return Dispatch("cdist", {"a": x1, "b": x2, "y": out}, params, grid, code=norm_code(p))


@op("aten._pdist_forward.default")
def pdist(x: LiveTensor, p: float, out: LiveTensor) -> Dispatch:
    """The distances between rows i and j for all i < j, in the order (0, 1), (0, 2), .. (1, 2), .."""
    check(x.rank == 2, f"x must have 2 dimensions, not shape {describe(x.shape)}")
    check(p >= 0, f"p must not be negative, not {p}")
    rows, width = x.shape
    out.resize((rows * (rows - 1) // 2 if rows else 0,))
    params: dict[str, Number] = {
        "quads": quads(out.numel),
        "rows": rows,
        "width": width,
        "norm": p if math.isfinite(p) else 0.0,
    }
    return Dispatch("pdist", {"x": x, "y": out}, params, threads(quads(out.numel)), code=norm_code(p))
