"""Row-wise operators: a statistic of each row, then every element by it. Norms and softmax.

The statistic is a reduction (see `reduce`) whose state ends as a pair of numbers. Any width, any dimension
and any float type go through two kernels, the second driven by the words of the output. Where rows are
contiguous, a GPU gives each a workgroup; so does a software adapter, of eight lanes.
"""

from __future__ import annotations

from collections.abc import Sequence

from pteron.graph.dispatch import (
    GPU,
    SOFTWARE,
    SUBGROUP,
    Bound,
    Dispatch,
    Route,
    Scratch,
    describe,
    fold,
    quads,
    threads,
)
from pteron.graph.dtypes import DType
from pteron.graph.live import LiveTensor
from pteron.graph.op import check, op
from pteron.graph.values import numel
from pteron.ops.reduce import Reduction
from pteron.ops.shapes import dimension

SUM_OF_SQUARES = Reduction("x * x", "a + b", "inverseSqrt(s / f32(p.width) + p.eps), 0.0", "0.0")
# The maximum, and the sum of exponentials relative to it: the lower of two sums is brought to the higher top.
_LEAD = "a.top > b.top"
_FALL = "exp(min(a.top, b.top) - max(max(a.top, b.top), -3.4028234e38))"  # what is -inf falls from any number
MAX_AND_SUM = Reduction(
    "state_t(x, 1.0)",
    f"state_t(max(a.top, b.top), select(b.sum, a.sum, {_LEAD}) + select(a.sum, b.sum, {_LEAD}) * {_FALL})",
    "s.top, s.sum",
    kind="top: f32, sum: f32",
)

SHORT = 32  # elements of a row that is not worth a workgroup
LONG = 1024  # elements of a row that is worth many lanes
FEW = 4  # rows that are no work for the eight lanes of a software adapter, if each takes one


def row_groups(
    x: LiveTensor,
    out: LiveTensor,
    *,
    rows: int,
    width: int,
    widest: int,
    statistic: Reduction,
    apply: str,
    eps: float = 0.0,
    weight: LiveTensor | None = None,
    bias: LiveTensor | None = None,
    channels: int = 1,
    inner: int = 1,
    whole: bool = False,
    added: tuple[LiveTensor, LiveTensor] | None = None,
    stats: Scratch | None = None,
    after: Sequence[Dispatch] = (),
    when: bool | None = None,
    few: bool = True,
) -> list[Route]:
    """A workgroup for each row, in one kernel. `widest`: the width at the largest shape.

    `apply`: the results of four elements `x` by the statistics `s`, the weights `w` and the biases `b`.
    `whole`: rows are whole quads and never change their width. `added`: what is added to x, and where the
    sum goes. `stats`: where the statistics go. `few`: whether eight lanes are better than one for each row.
    """
    ragged = not whole and out.dtype.itemsize == 4
    fits = width >= SHORT and (whole or ragged or width % 4 == 0) and when is not False
    if whole and not fits and when is None:
        return []
    bindings: dict[str, Bound] = {"x": x, "y": out}
    if added:
        bindings |= dict(zip(("other", "total"), added, strict=True))
    extra = {"weight": weight, "bias": bias, "stats": stats}
    bindings |= {name: bound for name, bound in extra.items() if bound is not None}
    code = _pair(statistic) + "fn apply(x: vec4<f32>, s: vec2<f32>, w: vec4<f32>, b: vec4<f32>) -> vec4<f32> "
    code += f"{{ return {apply}; }}\n"

    def dispatch(lanes: int, in_subgroup: bool) -> Dispatch:
        defines = {
            "LANES": lanes,
            "IN_SUBGROUP": in_subgroup,
            "IN_WORKGROUP": not in_subgroup,
            "RAGGED": ragged,
            "ALONG": whole and inner == 1,
            "ADDED": added is not None,
            "HAS_WEIGHT": weight is not None,
            "HAS_BIAS": bias is not None,
            "KEPT": stats is not None,
        }
        params = {"rows": rows, "width": width, "channels": channels, "inner": inner, "eps": eps}
        swapping = statistic.swapping if in_subgroup else ""
        return Dispatch("row_group", bindings, params, fold(rows), defines, code + swapping)

    many = dispatch(256 if widest >= LONG else 64, in_subgroup=False)
    eight = dispatch(8, in_subgroup=True)
    return [
        Route("workgroup a row", [many, *after], None if whole and when is None else fits, home=GPU),
        Route("eight lanes a row", [eight, *after], fits and few, needs=SUBGROUP, home=SOFTWARE),
    ]


def row_wise(
    x: LiveTensor,
    out: LiveTensor,
    *,
    dim: int,
    statistic: Reduction,
    apply: str,
    eps: float = 0.0,
    weight: LiveTensor | None = None,
) -> list[Route]:
    """Statistics of every row along `dim`, then `apply` over the elements."""
    shape, largest = x.shape or (1,), x.max_shape or (1,)
    width, inner = shape[dim], numel(shape[dim + 1 :])
    rows = numel(shape[:dim]) * inner
    stats = Scratch("stats", 8 * numel(largest[:dim]) * numel(largest[dim + 1 :]))
    apart = [
        Dispatch(
            "row_stats",
            {"x": x, "stats": stats},
            {"rows": rows, "width": width, "inner": inner, "eps": eps},
            threads(rows),
            code=_pair(statistic),
        ),
        Dispatch(
            "row_apply",
            {"x": x, "stats": stats, "weight": weight or x, "y": out},
            {"quads": quads(x.numel), "width": width, "inner": inner},
            threads(quads(x.numel)),
            {"HAS_WEIGHT": weight is not None},
            f"fn apply(x: f32, s: vec2<f32>, w: f32) -> f32 {{ return {apply}; }}",
        ),
    ]
    grouped = row_groups(
        x,
        out,
        rows=rows,
        width=width,
        widest=largest[dim],
        statistic=statistic,
        apply=apply,
        eps=eps,
        weight=weight,
        channels=width,
        when=None if dim == len(shape) - 1 else inner == 1,
    )
    return [*grouped, Route("two kernels", apart)]


def _pair(statistic: Reduction) -> str:
    """A reduction that ends as a pair of numbers."""
    finish = f"fn finish(s: state_t) -> vec2<f32> {{ return vec2<f32>({statistic.finish}); }}\n"
    return statistic.joining + statistic.lifting + finish


@op("et_vk.rms_norm.default")
def rms_norm(x: LiveTensor, weight: LiveTensor, eps: float, out: LiveTensor) -> list[Route]:
    check(x.rank >= 1, "x must have at least one dimension")
    width = x.shape[-1]
    check(
        weight.shape == (width,), f"weight has shape {describe(weight.shape)}, but rows have {width} elements"
    )
    out.resize(x.shape)
    if width % 4 == 0 and x.dtype == weight.dtype == out.dtype == DType.float32 and weight.is_fixed:
        return [
            *rms_groups(x, weight, eps, out),
            Route("invocation a row", [rms_walk(x, weight, eps, out)]),
        ]
    apply = "x * s.x * w"
    return row_wise(x, out, dim=x.rank - 1, eps=eps, statistic=SUM_OF_SQUARES, apply=apply, weight=weight)


def rms_walk(x: LiveTensor, weight: LiveTensor, eps: float, out: LiveTensor) -> Dispatch:
    width = weight.shape[0]
    rows = out.numel // width
    params = {"rows": rows, "width": width, "eps": eps}
    return Dispatch("rms_norm", {"x": x, "weight": weight, "y": out}, params, threads(rows))


def rms_groups(
    x: LiveTensor,
    weight: LiveTensor,
    eps: float,
    out: LiveTensor,
    added: tuple[LiveTensor, LiveTensor] | None = None,
    when: bool | None = None,
) -> list[Route]:
    """The norm of x, or of the sum of x and what is `added` to it, by a weight that never changes."""
    width = weight.shape[0]
    return row_groups(
        x,
        out,
        rows=out.numel // width,
        width=width,
        widest=width,
        statistic=SUM_OF_SQUARES,
        apply="x * s.x * w",
        eps=eps,
        weight=weight,
        channels=width,
        whole=True,
        added=added,
        when=when,
        few=out.numel // width < FEW,
    )


@op("aten._softmax.default")
def softmax(x: LiveTensor, dim: int, half_to_float: bool, out: LiveTensor) -> list[Route]:
    return _softmax(x, dim, out, "exp(x - s.x) / s.y")


@op("aten._log_softmax.default")
def log_softmax(x: LiveTensor, dim: int, half_to_float: bool, out: LiveTensor) -> list[Route]:
    return _softmax(x, dim, out, "x - s.x - log(s.y)")


def _softmax(x: LiveTensor, dim: int, out: LiveTensor, apply: str) -> list[Route]:
    out.resize(x.shape)
    return row_wise(x, out, dim=dimension(dim, x.rank), statistic=MAX_AND_SUM, apply=apply)
