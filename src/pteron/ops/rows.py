"""Row-wise operators: a statistic of each row, then every element by it. Norms and softmax.

Any width, any dimension and any float type go through two kernels, the second driven by the
words of the output. Shapes that are common and regular have a route of their own.
"""

from __future__ import annotations

from pteron.graph.dispatch import Dispatch, Scratch, describe, quads, threads
from pteron.graph.dtypes import DType
from pteron.graph.live import LiveTensor
from pteron.graph.op import check, op
from pteron.graph.values import numel
from pteron.ops.shapes import dimension

SUM_OF_SQUARES = """
fn statistics(first: u32, stride: u32) -> vec2<f32> {
    var sum = 0.0;
    for (var k = 0u; k < p.width; k++) { let v = f32(x_at(first + k * stride)); sum += v * v; }
    return vec2<f32>(inverseSqrt(sum / f32(p.width) + p.eps), 0.0);
}
"""
# The maximum, and the sum of exponentials relative to it.
MAX_AND_SUM = """
fn statistics(first: u32, stride: u32) -> vec2<f32> {
    var top = f32(x_at(first));
    for (var k = 1u; k < p.width; k++) { top = max(top, f32(x_at(first + k * stride))); }
    var sum = 0.0;
    for (var k = 0u; k < p.width; k++) { sum += exp(f32(x_at(first + k * stride)) - top); }
    return vec2<f32>(top, sum);
}
"""


def row_wise(
    x: LiveTensor,
    out: LiveTensor,
    *,
    dim: int,
    eps: float = 0.0,
    statistics: str,
    apply: str,
    weight: LiveTensor | None = None,
    bias: LiveTensor | None = None,
) -> list[Dispatch]:
    """Statistics of every row along `dim`, then `apply` over the elements."""
    shape, largest = x.shape or (1,), x.max_shape or (1,)
    width, inner = shape[dim], numel(shape[dim + 1 :])
    rows = numel(shape[:dim]) * inner
    stats = Scratch("stats", 8 * numel(largest[:dim]) * numel(largest[dim + 1 :]))
    function = f"fn apply(x: f32, s: vec2<f32>, k: u32) -> f32 {{ return {apply}; }}"
    return [
        Dispatch(
            "row_stats",
            {"x": x, "stats": stats},
            {"rows": rows, "width": width, "inner": inner, "eps": eps},
            threads(rows),
            code=statistics,
        ),
        Dispatch(
            "row_apply",
            {"x": x, "stats": stats, "weight": weight or x, "bias": bias or x, "y": out},
            {"quads": quads(x.numel), "width": width, "inner": inner},
            threads(quads(x.numel)),
            code=function,
        ),
    ]


@op("et_vk.rms_norm.default")
def rms_norm(x: LiveTensor, weight: LiveTensor, eps: float, out: LiveTensor) -> Dispatch | list[Dispatch]:
    check(x.rank >= 1, "x must have at least one dimension")
    width = x.shape[-1]
    check(
        weight.shape == (width,), f"weight has shape {describe(weight.shape)}, but rows have {width} elements"
    )
    out.resize(x.shape)
    rows = x.numel // width if width else 0
    if width % 4 == 0 and x.dtype == weight.dtype == out.dtype == DType.float32 and weight.is_fixed:
        params = {"rows": rows, "width": width, "eps": eps}
        return Dispatch("rms_norm", {"x": x, "weight": weight, "y": out}, params, threads(rows))
    apply = "x * s.x * f32(weight_at(k))"
    return row_wise(x, out, dim=x.rank - 1, eps=eps, statistics=SUM_OF_SQUARES, apply=apply, weight=weight)


@op("aten._softmax.default")
def softmax(x: LiveTensor, dim: int, half_to_float: bool, out: LiveTensor) -> list[Dispatch]:
    return _softmax(x, dim, out, "exp(x - s.x) / s.y")


@op("aten._log_softmax.default")
def log_softmax(x: LiveTensor, dim: int, half_to_float: bool, out: LiveTensor) -> list[Dispatch]:
    return _softmax(x, dim, out, "x - s.x - log(s.y)")


def _softmax(x: LiveTensor, dim: int, out: LiveTensor, apply: str) -> list[Dispatch]:
    out.resize(x.shape)
    return row_wise(x, out, dim=dimension(dim, x.rank), statistics=MAX_AND_SUM, apply=apply)
