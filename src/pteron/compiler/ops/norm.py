"""Layer, group and batch norm.

Layer and group norm compute the mean and variance of contiguous rows. A row may be a whole image. So a row is
split into parts, and the moments of the parts are merged. This is precise for every mean, and no invocation
has a long loop. On a GPU, a shorter row is computed by one workgroup.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from pteron.compiler.ir.rule import (
    Dispatch,
    LiveTensor,
    MixesRows,
    Route,
    RowArguments,
    RowWise,
    Scratch,
    Shape,
    check,
    describe,
    numel,
    op,
    quads,
    threads,
)
from pteron.compiler.ops.reduce import NOT_FINITE, VARIANCE
from pteron.compiler.ops.rows import Rows

PART_LENGTH = 512  # elements per invocation
MAX_WORKGROUP_ROW = 16384  # the longest row that one workgroup computes
OF_NOTHING = (0.0, math.nan)  # the mean and the reciprocal standard deviation of a row without elements
MEAN_AND_RSTD = replace(
    VARIANCE, finish=f"s.mean, nan_where(inverseSqrt(s.squares / f32(p.width) + p.eps), {NOT_FINITE})"
)


def _layer_norm_rows(call: RowArguments) -> int:
    call.only("x")
    d, rank = call.dim("x"), len(call["x"].max_shape)
    if d >= rank - len(call["normalized_shape"]):
        raise MixesRows(f"it normalises over dimension {d}, which has a row for each token")
    return d


@op("aten.native_layer_norm.default", rows=RowWise(_layer_norm_rows))
def layer_norm(
    x: LiveTensor,
    normalized_shape: Shape,
    weight: LiveTensor | None,
    bias: LiveTensor | None,
    eps: float,
    outs: Sequence[LiveTensor],
) -> list[Route]:
    dims = len(normalized_shape)
    lead, tail = x.shape[: x.rank - dims], x.shape[x.rank - dims :]
    check(
        tail == tuple(normalized_shape),
        f"x has live shape {describe(x.shape)}, which does not end in {describe(normalized_shape)}",
    )
    outs[0].resize(x.shape)
    for statistic in outs[1:]:
        statistic.resize(lead + (1,) * dims)
    largest = numel(x.max_shape[: x.rank - dims]), numel(x.max_shape[x.rank - dims :])
    width = numel(tail)
    whole = width % 4 == 0 and weight is not None and weight.is_fixed
    return _normalize(x, weight, bias, eps, outs, numel(lead), largest, channels=width, inner=1, whole=whole)


@op("pteron.layer_norm", rows=RowWise(_layer_norm_rows))
def layer_norm_alone(
    x: LiveTensor,
    normalized_shape: Shape,
    weight: LiveTensor | None,
    bias: LiveTensor | None,
    eps: float,
    out: LiveTensor,
) -> list[Route]:
    """A layer norm whose statistics nothing reads, see fusion/unused_norm_outputs."""
    return layer_norm(x, normalized_shape, weight, bias, eps, (out,))  # type: ignore[no-any-return]


@op("pteron.group_norm")
def group_norm_alone(
    x: LiveTensor,
    weight: LiveTensor | None,
    bias: LiveTensor | None,
    n: int,
    c: int,
    hxw: int,
    group: int,
    eps: float,
    out: LiveTensor,
) -> list[Route]:
    """A group norm whose statistics nothing reads, see fusion/unused_norm_outputs."""
    return group_norm(x, weight, bias, n, c, hxw, group, eps, (out,))  # type: ignore[no-any-return]


@op("aten.native_group_norm.default")
def group_norm(
    x: LiveTensor,
    weight: LiveTensor | None,
    bias: LiveTensor | None,
    n: int,
    c: int,
    hxw: int,
    group: int,
    eps: float,
    outs: Sequence[LiveTensor],
) -> list[Route]:
    check(x.rank >= 2, f"x must have a batch and a channel dimension, not shape {describe(x.shape)}")
    batch, channels = x.shape[:2]
    check(group > 0 and channels % group == 0, f"{channels} channels cannot be split into {group} groups")
    outs[0].resize(x.shape)
    for statistic in outs[1:]:
        statistic.resize((batch, group))
    largest = x.max_shape[0] * group, numel(x.max_shape[1:]) // group
    inner = numel(x.shape[2:])
    return _normalize(x, weight, bias, eps, outs, batch * group, largest, channels, inner)


def _normalize(
    x: LiveTensor,
    weight: LiveTensor | None,
    bias: LiveTensor | None,
    eps: float,
    outs: Sequence[LiveTensor],
    rows: int,
    largest: tuple[int, int],
    channels: int,
    inner: int,
    whole: bool = False,
) -> list[Route]:
    """Normalise each row. `largest`: the number of rows and their width at the largest shape."""
    check_affine(weight, bias, channels)
    width = x.numel // rows if rows else largest[1]  # without rows, the route is that of other calls
    parts = -(-width // PART_LENGTH)
    moments = Scratch("moments", 8 * largest[0] * -(-largest[1] // PART_LENGTH))
    stats = Scratch("stats", 8 * largest[0])
    work = rows if width else 0
    size = {"rows": rows, "width": width, "parts": parts}
    place = {"quads": quads(x.numel), "width": width, "channels": channels, "inner": inner}
    out, *statistics = outs
    columns = [
        Dispatch(
            "stats_column",
            {"stats": stats, "y": y},
            {"rows": rows, "width": width, "of_nothing": of_nothing},
            threads(quads(rows)),
            {"COLUMN": i},
        )
        for i, (y, of_nothing) in enumerate(zip(statistics, OF_NOTHING, strict=False))
    ]
    parts_first = [
        Dispatch("moments", {"x": x, "moments": moments}, size, threads(work * parts)),
        Dispatch("moments_merge", {"moments": moments, "stats": stats}, {**size, "eps": eps}, threads(work)),
        Dispatch(
            "norm_apply",
            {"x": x, "stats": stats, "weight": weight or x, "bias": bias or x, "y": out},
            place,
            threads(quads(x.numel)),
            {"HAS_WEIGHT": weight is not None, "HAS_BIAS": bias is not None},
        ),
        *columns,
    ]
    grouped = Rows(
        x=x,
        out=out,
        rows=rows,
        width=width,
        widest=largest[1],
        statistic=MEAN_AND_RSTD,
        apply="(x - s.x) * s.y * w + b",
        eps=eps,
        weight=weight,
        bias=bias,
        channels=channels,
        inner=inner,
        whole=whole,
        stats=stats if statistics else None,
    )
    fits = width <= MAX_WORKGROUP_ROW
    when = None if whole and fits else fits
    return [*grouped.routes(when, after=columns), Route("in parts", parts_first)]


@op("aten._native_batch_norm_legit_no_training.default")
def batch_norm(
    x: LiveTensor,
    weight: LiveTensor | None,
    bias: LiveTensor | None,
    running_mean: LiveTensor,
    running_var: LiveTensor,
    momentum: float,
    eps: float,
    outs: Sequence[LiveTensor],
) -> Dispatch:
    check(x.rank >= 2, f"x must have a batch and a channel dimension, not shape {describe(x.shape)}")
    channels = x.shape[1]
    check_affine(running_mean, running_var, channels)
    check_affine(weight, bias, channels)
    outs[0].resize(x.shape)
    for statistic in outs[1:]:  # only training computes them
        statistic.resize(statistic.max_shape)
    bindings = {
        "x": x,
        "mean": running_mean,
        "variance": running_var,
        "weight": weight or running_var,
        "bias": bias or running_mean,
        "y": outs[0],
    }
    params = {"quads": quads(x.numel), "channels": channels, "inner": numel(x.shape[2:]), "eps": eps}
    defines = {"HAS_WEIGHT": weight is not None, "HAS_BIAS": bias is not None, "INVERTED": False}
    return Dispatch("batch_norm", bindings, params, threads(quads(x.numel)), defines)


def check_affine(weight: LiveTensor | None, bias: LiveTensor | None, channels: int) -> None:
    for tensor in (weight, bias):
        if tensor is not None:
            check(
                tensor.numel == channels,
                f"{channels} channels do not match a tensor of {describe(tensor.shape)}",
            )
