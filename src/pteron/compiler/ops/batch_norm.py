"""Batch norm with the statistics of the current batch: instance norm, weight standardisation, training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from pteron.compiler.ir.rule import Dispatch, LiveTensor, Route, check, describe, numel, op, quads, threads
from pteron.compiler.ops.norm import batch_norm, check_affine
from pteron.compiler.ops.reduce import MEAN_OF_MOMENTS, NOT_FINITE, VARIANCE, combined, reduce

# The parameter `correction` contains eps.
RECIPROCAL_DEVIATION = replace(
    VARIANCE, finish=f"nan_where(inverseSqrt(s.squares / f32(p.count) + p.correction), {NOT_FINITE})"
)


@op("aten._native_batch_norm_legit.no_stats")
def batch_norm_without_stats(
    x: LiveTensor,
    weight: LiveTensor | None,
    bias: LiveTensor | None,
    training: bool,
    momentum: float,
    eps: float,
    outs: Sequence[LiveTensor],
) -> list[Route]:
    return normalize_by_batch(x, weight, bias, eps, outs)


@op("aten._native_batch_norm_legit.default", mutates=["running_mean", "running_var"])
def batch_norm_with_stats(
    x: LiveTensor,
    weight: LiveTensor | None,
    bias: LiveTensor | None,
    running_mean: LiveTensor,
    running_var: LiveTensor,
    training: bool,
    momentum: float,
    eps: float,
    outs: Sequence[LiveTensor],
) -> list[Route]:
    """In training, the running statistics move towards those of the batch."""
    if not training:
        apply = batch_norm(x, weight, bias, running_mean, running_var, momentum, eps, outs)
        return [Route("running", [apply])]
    routes = normalize_by_batch(x, weight, bias, eps, outs)
    channels, count = x.shape[1], x.numel // max(x.shape[1], 1)
    check_affine(running_mean, running_var, channels)
    update = Dispatch(
        "running_stats",
        {
            "mean": outs[1],
            "rstd": outs[2],
            "running_mean": running_mean,
            "running_var": running_var,
        },
        {
            "channels": channels,
            "momentum": momentum,
            "eps": eps,
            "unbiased": count / (count - 1) if count > 1 else math.nan,  # one element has no variance
        },
        threads(quads(channels)),
    )
    return [replace(route, dispatches=[*route.dispatches, update]) for route in routes]


def normalize_by_batch(
    x: LiveTensor,
    weight: LiveTensor | None,
    bias: LiveTensor | None,
    eps: float,
    outs: Sequence[LiveTensor],
) -> list[Route]:
    """The normalized x, and the mean and the reciprocal standard deviation of each channel."""
    check(x.rank >= 2, f"x must have a batch and a channel dimension, not shape {describe(x.shape)}")
    channels = x.shape[1]
    check(x.numel > 0 or not channels, f"x {describe(x.shape)} has no elements to take the mean of")
    check_affine(weight, bias, channels)
    y, mean, rstd = outs
    y.resize(x.shape)
    dims = [d for d in range(x.rank) if d != 1]
    statistics = combined(
        reduce(x, mean, dims, False, MEAN_OF_MOMENTS),
        reduce(x, rstd, dims, False, RECIPROCAL_DEVIATION, eps),
    )
    apply = Dispatch(
        "batch_norm",
        {"x": x, "mean": mean, "variance": rstd, "weight": weight or rstd, "bias": bias or mean, "y": y},
        {"quads": quads(x.numel), "channels": channels, "inner": numel(x.shape[2:]), "eps": eps},
        threads(quads(x.numel)),
        {"HAS_WEIGHT": weight is not None, "HAS_BIAS": bias is not None, "INVERTED": True},
    )
    return [replace(route, dispatches=[*route.dispatches, apply]) for route in statistics]
