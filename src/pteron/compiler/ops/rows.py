"""Row-wise operators: RMS norm and softmax. They compute a statistic of each row, then every element from it.

The statistic is a reduction (see `reduce`) whose result is a pair of numbers. Two kernels work for every
width, dimension and float type. If rows are contiguous, a workgroup of a GPU computes a whole row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pteron.compiler.ir.extensions import more_routes
from pteron.compiler.ir.rule import (
    GPU,
    Bound,
    Define,
    Dispatch,
    DType,
    LiveTensor,
    Route,
    Scratch,
    check,
    describe,
    fold,
    numel,
    op,
    quads,
    rows_of,
    threads,
)
from pteron.compiler.ops.reduce import Reduction
from pteron.compiler.ops.shapes import dimension

SUM_OF_SQUARES = Reduction("x * x", "a + b", "inverseSqrt(s / f32(p.width) + p.eps), 0.0", "0.0")
# The maximum (`top`), and the sum of exponentials relative to it. A merge scales the sum of the smaller top.
_LARGER = "a.top > b.top"
# Tops may both be -inf. If one is NaN, so is the sum.
_DECAY = "select(exp(-abs(a.top - b.top)), 1.0, a.top == b.top)"
MAX_AND_SUM = Reduction(
    "state_t(x, 1.0)",
    "state_t(max(a.top, b.top), "
    f"select(b.sum, a.sum, {_LARGER}) + select(a.sum, b.sum, {_LARGER}) * {_DECAY})",
    "s.top, nan_where(s.sum, is_nan(s.top) || (is_inf(s.top) && s.top > 0.0))",
    kind="top: f32, sum: f32",
)

SHORT_ROW = 32  # a row with at most this many elements does not need a workgroup


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Contiguous rows. One kernel computes them, with one workgroup per row.

    `apply` is the WGSL expression of the result: of the elements `x`, the statistics `s`, the weights `w` and
    the biases `b`.
    """

    x: LiveTensor
    out: LiveTensor | Scratch
    rows: int
    width: int
    widest: int  # the width at the largest shape
    statistic: Reduction
    apply: str
    eps: float = 0.0
    weight: LiveTensor | None = None
    bias: LiveTensor | None = None
    channels: int = 1  # the number of weights and of biases
    inner: int = 1  # neighbouring elements that share a weight and a bias
    whole: bool = False  # rows are whole quads, and their width never changes
    added: tuple[LiveTensor, LiveTensor] | None = None  # a second term, and the target of the sum
    stats: Scratch | None = None  # the target of the statistics
    has_row_kernel: bool = False  # another route computes a row with one invocation

    def routes(self, when: bool | None = None, after: Sequence[Dispatch] = ()) -> list[Route]:
        fits = self.width >= SHORT_ROW and (self._ragged or self.width % 4 == 0) and when is not False
        always = self.whole and when is None
        if always and not fits:
            return []
        many = self.by_workgroups()
        return [
            Route("workgroup per row", [many, *after], None if always else fits, target=GPU),
            *more_routes(GroupedRows(self, fits, after)),
        ]

    def by_workgroups(self) -> Dispatch:
        """One workgroup per row, with as many lanes as the row has quads."""
        lanes = next((n for n in (64, 128) if 4 * n >= self.widest), 256)
        return self.dispatch(lanes, turns=-(-self.width // (4 * lanes)) if self.whole else 0)

    @property
    def _ragged(self) -> bool:
        """Whether rows may begin and end inside a quad. Only four-byte elements can be stored one by one."""
        return not self.whole and self.out.dtype.itemsize == 4

    def dispatch(self, lanes: int, in_subgroup: bool = False, turns: int = 0) -> Dispatch:
        """`turns`: quads per lane; 0: the kernel computes this number."""
        other, total = self.added or (None, None)
        optional: dict[str, dict[str, Bound | None]] = {
            "ADDED": {"other": other, "total": total},
            "HAS_WEIGHT": {"weight": self.weight},
            "HAS_BIAS": {"bias": self.bias},
            "KEPT": {"stats": self.stats},
        }
        bindings: dict[str, Bound] = {"x": self.x, "y": self.out}
        defines: dict[str, Define] = {
            "LANES": lanes,
            "TURNS": turns,
            "IN_SUBGROUP": in_subgroup,
            "RAGGED": self._ragged,
            "ALONG": self.whole,
        }
        for flag, named in optional.items():
            there = {name: bound for name, bound in named.items() if bound is not None}
            bindings |= there
            defines[flag] = bool(there)
        params = {"rows": self.rows, "width": self.width, "eps": self.eps}
        params |= {"channels": self.channels, "inner": self.inner}
        code = _pair_code(self.statistic) + (self.statistic.swap_code if in_subgroup else "")
        code += "fn apply(x: vec4<f32>, s: vec2<f32>, w: vec4<f32>, b: vec4<f32>) -> vec4<f32> "
        code += f"{{ return {self.apply}; }}\n"
        return Dispatch("row_group", bindings, params, fold(self.rows), defines, code)


@dataclass(frozen=True, slots=True)
class GroupedRows:
    """Rows that one kernel computes, for extensions."""

    rows: Rows
    fits: bool  # whether the kernel can compute the live shape
    after: Sequence[Dispatch]


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
    """Compute the statistics of every row along `dim`, then `apply` to every element."""
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
            code=_pair_code(statistic),
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
    grouped = Rows(
        x=x,
        out=out,
        rows=rows,
        width=width,
        widest=largest[dim],
        statistic=statistic,
        apply=apply,
        eps=eps,
        weight=weight,
        channels=width,
    )
    return [*grouped.routes(when=inner == 1), Route("two kernels", apart)]


def _pair_code(statistic: Reduction) -> str:
    """The WGSL of a reduction whose result is a pair of numbers."""
    finish = f"fn finish(s: state_t) -> vec2<f32> {{ return vec2<f32>({statistic.finish}); }}\n"
    return statistic.merge_code + statistic.lift_code + finish


@op("et_vk.rms_norm.default", rows=rows_of("x", mixes=-1))
def rms_norm(x: LiveTensor, weight: LiveTensor, eps: float, out: LiveTensor) -> list[Route]:
    check(x.rank >= 1, "x must have at least one dimension")
    width = x.shape[-1]
    check(
        weight.shape == (width,), f"weight has shape {describe(weight.shape)}, but rows have {width} elements"
    )
    out.resize(x.shape)
    if width % 4 == 0 and x.dtype == weight.dtype == out.dtype == DType.float32 and weight.is_fixed:
        return [
            *rms_workgroup_routes(x, weight, eps, out),
            Route("invocation per row", [rms_norm_dispatch(x, weight, eps, out)]),
        ]
    apply = "x * s.x * w"
    return row_wise(x, out, dim=x.rank - 1, eps=eps, statistic=SUM_OF_SQUARES, apply=apply, weight=weight)


def rms_norm_dispatch(x: LiveTensor, weight: LiveTensor, eps: float, out: LiveTensor) -> Dispatch:
    width = weight.shape[0]
    rows = out.numel // width
    params = {"rows": rows, "width": width, "eps": eps}
    return Dispatch("rms_norm", {"x": x, "weight": weight, "y": out}, params, threads(rows))


def rms_workgroup_routes(
    x: LiveTensor,
    weight: LiveTensor,
    eps: float,
    out: LiveTensor,
    added: tuple[LiveTensor, LiveTensor] | None = None,
    when: bool | None = None,
) -> list[Route]:
    """The RMS norm of x, or of the sum of x and the `added` tensor. The shape of the weight is fixed."""
    return rms_rows(x, weight, eps, out, out.numel // weight.shape[0], added).routes(when)


def rms_rows(
    x: LiveTensor,
    weight: LiveTensor,
    eps: float,
    out: LiveTensor | Scratch,
    rows: int,
    added: tuple[LiveTensor, LiveTensor] | None = None,
) -> Rows:
    width = weight.shape[0]
    return Rows(
        x=x,
        out=out,
        rows=rows,
        width=width,
        widest=width,
        statistic=SUM_OF_SQUARES,
        apply="x * s.x * w",
        eps=eps,
        weight=weight,
        channels=width,
        whole=True,
        added=added,
        has_row_kernel=True,
    )


@op("aten._softmax.default", rows=rows_of("x", mixes="dim"))
def softmax(x: LiveTensor, dim: int, half_to_float: bool, out: LiveTensor) -> list[Route]:
    return _softmax(x, dim, out, "exp(x - s.x) / s.y")


@op("aten._log_softmax.default", rows=rows_of("x", mixes="dim"))
def log_softmax(x: LiveTensor, dim: int, half_to_float: bool, out: LiveTensor) -> list[Route]:
    return _softmax(x, dim, out, "x - s.x - log(s.y)")


def _softmax(x: LiveTensor, dim: int, out: LiveTensor, apply: str) -> list[Route]:
    out.resize(x.shape)
    return row_wise(x, out, dim=dimension(dim, x.rank), statistic=MAX_AND_SUM, apply=apply)
