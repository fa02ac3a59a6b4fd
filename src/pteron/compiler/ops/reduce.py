"""Reductions over any dimensions: sums, extremes and their indices, moments.

A reduction makes a state from each element, and merges the states. The merge is associative and commutative.
A long reduction is divided into parts, whose states are then merged. On a GPU, the lanes of one workgroup or
of several workgroups compute the parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isqrt
from typing import TypeAlias

from pteron.compiler.ir.integer_rules import (
    AS_FLOATS,
    DECIDES,
    EXTREME,
    MULTIPLIED,
    RUNNING_PRODUCT,
    RUNNING_SUM,
    SORTED,
    SUMMED,
)
from pteron.compiler.ir.rule import (
    GPU,
    Dispatch,
    DType,
    LiveTensor,
    Number,
    Route,
    Scratch,
    Shape,
    Unused,
    check,
    fold,
    numel,
    op,
    quads,
    rows_of,
    threads,
)
from pteron.compiler.ops.elementwise import Elementwise, all_integer, elementwise_dispatch, wide_target
from pteron.compiler.ops.shapes import contiguous, dimension, merge

# The dimensions to reduce: several, one, or all of them.
Dims: TypeAlias = Sequence[int] | int | None

LONG_REDUCTION = 256  # with fewer elements than this, a second dispatch costs more than it saves
MAX_PARTS = 16384
LANES = 64  # per workgroup of reduce_group
ELEMENTS_PER_WORKGROUP = 4096
MANY_OUTPUTS = 512  # this many outputs keep a whole GPU busy
FEW_OUTPUTS = 4096  # invocations for no more outputs than this leave most of a GPU idle
INT64 = "vec2<u32>"  # a 64-bit integer: its low and its high word


@dataclass(frozen=True, slots=True)
class Reduction:
    """A reduction in WGSL: make a state from an element, merge two states, get the result from a state."""

    lift: str  # a state from the element `x` with the index `k`
    merge: str  # a state from the states `a` and `b`
    finish: str = "s"
    nothing: str | None = None  # the state of zero elements, if the reduction has one
    kind: str = "f32"  # the type of the state, or the fields of its struct

    @property
    def state(self) -> str:
        if ":" not in self.kind:
            return f"alias state_t = {self.kind};\n"
        return f"struct state_t {{ {self.kind} }}\n"

    @property
    def nbytes(self) -> int:
        """The bytes of a state in an array. A struct with a 64-bit integer is aligned to it."""
        nbytes = 4 * (max(1, self.kind.count(":")) + self.kind.count(INT64))
        return -(-nbytes // 8) * 8 if INT64 in self.kind else nbytes

    @property
    def merge_code(self) -> str:
        none = f"return {self.nothing};" if self.nothing else "var s: state_t; return s;"
        return (
            f"{self.state}fn merge(a: state_t, b: state_t) -> state_t {{ return {self.merge}; }}\n"
            f"fn nothing() -> state_t {{ {none} }}\n"
        )

    @property
    def lift_code(self) -> str:
        return f"fn lift(x: x_t, k: u32) -> state_t {{ return {self.lift}; }}\n"

    @property
    def swap_code(self) -> str:
        """A WGSL function that reads the state of another lane: its number is this lane's XOR `mask`."""
        fields = [field.split(":")[0].strip() for field in self.kind.split(",")] if ":" in self.kind else []
        swaps = ", ".join(f"subgroupShuffleXor(s.{name}, mask)" for name in fields)
        made = f"state_t({swaps})" if fields else "subgroupShuffleXor(s, mask)"
        return f"fn swapped(s: state_t, mask: u32) -> state_t {{ return {made}; }}\n"

    @property
    def finish_code(self) -> str:
        return f"fn finish(s: state_t) -> y_t {{ return y_t({self.finish}); }}\n"


def scalar(x: LiveTensor) -> str:
    """The WGSL type that a tensor's elements are computed in."""
    if x.dtype is DType.int64:
        return INT64
    return "f32" if x.dtype.is_float else "i32"


def element_as(kind: str, x: LiveTensor) -> str:
    """The element `x` of a tensor in another type."""
    if scalar(x) == kind:
        return "x"
    if scalar(x) == INT64:
        return "low_word(x)" if kind == "i32" else "float_of_int64(x)"
    return "int64_of(i32(x))" if kind == INT64 else f"{kind}(x)"


def reduce(
    x: LiveTensor,
    out: LiveTensor,
    dims: Dims,
    keepdim: bool,
    reduction: Reduction,
    correction: float = 0.0,
) -> list[Route]:
    """out = the reduction of x over `dims`. An empty list or None means all dimensions."""
    listed = [dims] if isinstance(dims, int) else list(dims or range(x.rank))
    gone = {dimension(d, x.rank) for d in listed} if x.rank else set()
    kept = [d for d in range(x.rank) if d not in gone]
    out.resize(tuple(1 if d in gone else n for d, n in enumerate(x.shape) if keepdim or d not in gone))
    sizes = x.shape
    count = numel(tuple(sizes[d] for d in gone))
    check(count > 0 or reduction.nothing is not None or not out.numel, "there is nothing to reduce")
    places = _stride_params(x, kept, sorted(gone))
    outputs = out.numel
    parts = max(1, min(isqrt(count), MAX_PARTS // max(outputs, 1)))
    part = -(-count // parts)
    parts = -(-count // part) if part else 0
    ends: dict[str, Number] = {"outputs": outputs, "count": count, "correction": correction}
    direct = Dispatch(
        "reduce",
        {"x": x, "y": out},
        {**places, **ends},
        threads(quads(outputs)),
        code=reduction.merge_code + reduction.lift_code + reduction.finish_code,
    )
    states = Scratch("states", reduction.nbytes * min(MAX_PARTS, max(1, numel(x.max_shape))))
    first = Dispatch(
        "reduce_parts",
        {"x": x, "states": states},
        {**places, "outputs": outputs, "count": count, "parts": parts, "part": part},
        threads(outputs * parts),
        code=reduction.merge_code + reduction.lift_code,
    )
    second = Dispatch(
        "reduce_merge",
        {"states": states, "y": out},
        {**ends, "parts": parts},
        threads(quads(outputs)),
        code=reduction.merge_code + reduction.finish_code,
    )
    return [
        *_workgroup_routes(x, out, states, reduction, places, ends),
        Route("in parts", [first, second], when=count >= LONG_REDUCTION and parts >= 4),
        Route("invocation per output", [direct]),
    ]


def _workgroup_routes(
    x: LiveTensor,
    out: LiveTensor,
    states: Scratch,
    reduction: Reduction,
    places: Mapping[str, Number],
    ends: Mapping[str, Number],
) -> list[Route]:
    """Routes in which the lanes of one workgroup, or of several, divide the elements of an output."""
    outputs, count = out.numel, numel(x.shape) // max(out.numel, 1)
    # If there are many outputs and neighbouring outputs read neighbouring elements, one invocation per output
    # is as fast.
    shared = outputs <= MANY_OUTPUTS or places["run_stride"] == 1
    # The number of workgroups per output: each has enough elements, and all states fit in memory.
    parts = min(-(-count // ELEMENTS_PER_WORKGROUP), MAX_PARTS // max(outputs, 1))
    parts = -(-count // -(-count // parts)) if count and parts else 1  # no part is empty
    several = parts > 1 and outputs <= MANY_OUTPUTS
    first = workgroup_reduction(reduction, x, states, {**places, **ends}, count, parts)
    second = workgroup_reduction(reduction, states, out, ends, parts)
    once = workgroup_reduction(reduction, x, out, {**places, **ends}, count)
    least = LANES // 4 if outputs <= FEW_OUTPUTS else LANES  # idle lanes are better than few workgroups
    return [
        Route("several workgroups per output", [first, second], when=shared and several, target=GPU),
        Route("one workgroup per output", [once], when=shared and count >= least, target=GPU),
    ]


def workgroup_reduction(
    reduction: Reduction,
    source: LiveTensor | Scratch,
    target: LiveTensor | Scratch,
    params: Mapping[str, Number],
    terms: int,
    parts: int = 1,
) -> Dispatch:
    """One workgroup for each of the `parts` of an output. An output has `terms` terms.

    A source in scratch memory contains states, not elements. A target in scratch memory receives states.
    """
    of_states, to_states = isinstance(source, Scratch), isinstance(target, Scratch)
    words = isinstance(target, Scratch) or target.dtype.itemsize >= 4
    kind = "state_t" if isinstance(target, Scratch) else scalar(target)
    result = "s" if to_states else f"result_t({reduction.finish})"
    finish = f"alias result_t = {kind};\nfn finish(s: state_t) -> result_t {{ return {result}; }}\n"
    outputs = params["outputs"]
    assert isinstance(outputs, int)
    return Dispatch(
        "reduce_group",
        {"states" if of_states else "x": source, "y": target},
        {**params, "terms": terms, "parts": parts, "part": -(-terms // parts)},
        fold(outputs * parts if words else quads(outputs)),
        {
            "LANES": LANES,
            "OF_STATES": of_states,
            "TO_WORDS": words,
        },
        reduction.merge_code + finish + ("" if of_states else reduction.lift_code),
    )


def _stride_params(x: LiveTensor, kept: Sequence[int], gone: Sequence[int]) -> dict[str, Number]:
    strides = contiguous(x.shape)
    return stride_params(
        (tuple(x.shape[d] for d in kept), [strides[d] for d in kept]),
        (tuple(x.shape[d] for d in gone), [strides[d] for d in gone]),
    )


SizesAndStrides: TypeAlias = "tuple[Shape, Sequence[int]]"


def stride_params(kept: SizesAndStrides, gone: SizesAndStrides) -> dict[str, Number]:
    """Parameters: the sizes and strides of the kept dimensions, and of the reduced dimensions."""
    kept_sizes, (kept_strides,) = merge(*kept)
    sizes, (walk,) = merge(*gone)
    return {
        "kept_rank": len(kept_sizes),
        "kept_sizes": kept_sizes,
        "kept_strides": kept_strides,
        "run_rank": max(0, len(sizes) - 1),
        "run_sizes": sizes[:-1],
        "run_strides": walk[:-1],
        "run_length": sizes[-1] if sizes else 1,
        "run_stride": walk[-1] if sizes else 0,
    }


def combined(*reductions: list[Route]) -> list[Route]:
    """The routes of several reductions of one tensor. All reductions use the same route."""
    return [
        replace(same[0], dispatches=[dispatch for route in same for dispatch in route.dispatches])
        for same in zip(*reductions, strict=True)
    ]


# -- the reductions -------------------------------------------------------------------------------


def total(x: LiveTensor, out: LiveTensor) -> Reduction:
    """The sum of the elements, converted to the type of the output first: for bool, whether any is true."""
    return ANY if out.dtype is DType.bool else _accumulation(x, out, "+", 0)


def product(x: LiveTensor, out: LiveTensor) -> Reduction:
    return ALL if out.dtype is DType.bool else _accumulation(x, out, "*", 1)


def _accumulation(x: LiveTensor, out: LiveTensor, operator: str, neutral: int) -> Reduction:
    kind = scalar(out)
    nothing = f"int64_of({neutral})" if kind == INT64 else f"{kind}({neutral})"
    return Reduction(element_as(kind, x), accumulated(kind, operator), nothing=nothing, kind=kind)


def accumulated(kind: str, operator: str) -> str:
    """The sum or the product of `a` and `b` in WGSL."""
    return f"{'add64' if operator == '+' else 'mul64'}(a, b)" if kind == INT64 else f"a {operator} b"


def extreme(x: LiveTensor, beats: str) -> Reduction:
    """The largest or smallest element; NaN, if there is one."""
    kind = scalar(x)
    return Reduction("x", f"select(a, b, {order_of(x, beats)}(b, a))", kind=kind)


def place_of_extreme(x: LiveTensor, beats: str) -> Reduction:
    """The index of the extreme element; the first one if there are several."""
    order = order_of(x, beats)
    ahead = f"({order}(b.value, a.value) || (b.place < a.place && !{order}(a.value, b.value)))"
    merged = f"state_t(select(a.value, b.value, {ahead}), select(a.place, b.place, {ahead}))"
    return Reduction("state_t(x, k)", merged, "s.place", kind=f"value: {scalar(x)}, place: u32")


def order_of(x: LiveTensor, beats: str) -> str:
    """The function `above` or `below` for the elements of a tensor."""
    if x.dtype is DType.int64:
        return f"{beats}64"
    return beats if x.dtype.is_float else f"i{beats}"


MEAN = Reduction("f32(x)", "a + b", "s / f32(p.count)", "0.0")
ANY = Reduction("i32(!all(x == x_t(0)))", "a | b", nothing="0", kind="i32")
ALL = Reduction("i32(!all(x == x_t(0)))", "a & b", nothing="1", kind="i32")

# The number of elements, their mean, and the sum of squared distances from the mean. Merging two such states
# causes no cancellation.
_MOMENTS = "n: f32, mean: f32, squares: f32"
_MERGED = (
    "state_t(a.n + b.n, a.mean + (b.mean - a.mean) * (b.n / (a.n + b.n)), "
    "a.squares + b.squares + (b.mean - a.mean) * (b.mean - a.mean) * (a.n * b.n / (a.n + b.n)))"
)
NOT_FINITE = "is_inf(s.mean) || is_nan(s.mean)"  # then no distance from the mean is a number
_VARIANCE_OF_STATE = f"nan_where(s.squares / max(f32(p.count) - p.correction, 0.0), {NOT_FINITE})"
_ONE, _NONE = "state_t(1.0, f32(x), 0.0)", "state_t(0.0, 0.0, 0.0)"
VARIANCE = Reduction(_ONE, _MERGED, _VARIANCE_OF_STATE, _NONE, _MOMENTS)
DEVIATION = Reduction(_ONE, _MERGED, f"sqrt({_VARIANCE_OF_STATE})", _NONE, _MOMENTS)
MEAN_OF_MOMENTS = Reduction(_ONE, _MERGED, "nan_where(s.mean, s.n == 0.0)", _NONE, _MOMENTS)

# The largest element, and the sum of exponentials relative to it. An infinite element is not subtracted.
_TOP = "max(a.top, b.top)"
_SHIFT = f"select({_TOP}, 0.0, is_inf({_TOP}))"
LOG_SUM_EXP = Reduction(
    "state_t(f32(x), 1.0)",
    f"state_t({_TOP}, a.sum * exp(a.top - {_SHIFT}) + b.sum * exp(b.top - {_SHIFT}))",
    "s.top + log_scalar(s.sum)",
    kind="top: f32, sum: f32",
)


# -- the operators --------------------------------------------------------------------------------


@op("aten.sum.dim_IntList", rows=rows_of("x", mixes="dims"), integers=SUMMED)
def sum_dims(x: LiveTensor, dims: Dims, keepdim: bool, dtype: Unused, out: LiveTensor) -> list[Route]:
    return reduce(x, out, dims, keepdim, total(x, out))


@op("aten.sum.default", integers=SUMMED)
def sum_all(x: LiveTensor, dtype: Unused, out: LiveTensor) -> list[Route]:
    return reduce(x, out, None, False, total(x, out))


@op("aten.mean.dim", rows=rows_of("x", mixes="dims"), integers=AS_FLOATS)
def mean(x: LiveTensor, dims: Dims, keepdim: bool, dtype: Unused, out: LiveTensor) -> list[Route]:
    return reduce(x, out, dims, keepdim, MEAN)


@op("aten.mean.default", integers=AS_FLOATS)
def mean_all(x: LiveTensor, dtype: Unused, out: LiveTensor) -> list[Route]:
    return reduce(x, out, None, False, MEAN)


@op("aten.prod.default", integers=MULTIPLIED)
def prod_all(x: LiveTensor, dtype: Unused, out: LiveTensor) -> list[Route]:
    return reduce(x, out, None, False, product(x, out))


@op("aten.prod.dim_int", rows=rows_of("x", mixes="dim"), integers=MULTIPLIED)
def prod(x: LiveTensor, dim: int, keepdim: bool, dtype: Unused, out: LiveTensor) -> list[Route]:
    return reduce(x, out, dim, keepdim, product(x, out))


@op("aten.amax.default", rows=rows_of("x", mixes="dims"), integers=EXTREME)
def amax(x: LiveTensor, dims: Dims, keepdim: bool, out: LiveTensor) -> list[Route]:
    return reduce(x, out, dims, keepdim, extreme(x, "above"))


@op("aten.amin.default", rows=rows_of("x", mixes="dims"), integers=EXTREME)
def amin(x: LiveTensor, dims: Dims, keepdim: bool, out: LiveTensor) -> list[Route]:
    return reduce(x, out, dims, keepdim, extreme(x, "below"))


@op("aten.max.default", integers=EXTREME)
def max_all(x: LiveTensor, out: LiveTensor) -> list[Route]:
    return reduce(x, out, None, False, extreme(x, "above"))


@op("aten.min.default", integers=EXTREME)
def min_all(x: LiveTensor, out: LiveTensor) -> list[Route]:
    return reduce(x, out, None, False, extreme(x, "below"))


@op("aten.argmax.default", rows=rows_of("x", mixes="dim"), integers=DECIDES)
def argmax(x: LiveTensor, dim: int | None, keepdim: bool, out: LiveTensor) -> list[Route]:
    return reduce(x, out, dim, keepdim, place_of_extreme(x, "above"))


@op("aten.argmin.default", rows=rows_of("x", mixes="dim"), integers=DECIDES)
def argmin(x: LiveTensor, dim: int | None, keepdim: bool, out: LiveTensor) -> list[Route]:
    return reduce(x, out, dim, keepdim, place_of_extreme(x, "below"))


@op("aten.max.dim", rows=rows_of("x", mixes="dim"), integers=SORTED)
def max_dim(x: LiveTensor, dim: int, keepdim: bool, outs: Sequence[LiveTensor]) -> list[Route]:
    return _value_and_place(x, dim, keepdim, outs, "above")


@op("aten.min.dim", rows=rows_of("x", mixes="dim"), integers=SORTED)
def min_dim(x: LiveTensor, dim: int, keepdim: bool, outs: Sequence[LiveTensor]) -> list[Route]:
    return _value_and_place(x, dim, keepdim, outs, "below")


def _value_and_place(
    x: LiveTensor, dim: int, keepdim: bool, outs: Sequence[LiveTensor], beats: str
) -> list[Route]:
    values, places = outs
    return combined(
        reduce(x, values, dim, keepdim, extreme(x, beats)),
        reduce(x, places, dim, keepdim, place_of_extreme(x, beats)),
    )


@op("aten.any.default", integers=DECIDES)
def any_all(x: LiveTensor, out: LiveTensor) -> list[Route]:
    return reduce(x, out, None, False, ANY)


@op("aten.any.dim", "aten.any.dims", rows=rows_of("x", mixes="dims"), integers=DECIDES)
def any_dims(x: LiveTensor, dims: Dims, keepdim: bool, out: LiveTensor) -> list[Route] | Dispatch:
    if dims == ():
        return _as_bool(x, out)
    return reduce(x, out, dims, keepdim, ANY)


@op("aten.all.default", integers=DECIDES)
def all_all(x: LiveTensor, out: LiveTensor) -> list[Route]:
    return reduce(x, out, None, False, ALL)


@op("aten.all.dim", "aten.all.dims", rows=rows_of("x", mixes="dims"), integers=DECIDES)
def all_dims(x: LiveTensor, dims: Dims, keepdim: bool, out: LiveTensor) -> list[Route] | Dispatch:
    if dims == ():
        return _as_bool(x, out)
    return reduce(x, out, dims, keepdim, ALL)


def _as_bool(x: LiveTensor, out: LiveTensor) -> Dispatch:
    """`any` and `all` over an empty list of dimensions reduce nothing. A sum reduces everything then."""
    out.resize(x.shape)
    is_set = "select(vec4<i32>(0), vec4<i32>(1), !(x == zero))"
    return elementwise_dispatch(Elementwise(is_set, integer=all_integer(x, out)), [x], out)


@op("aten.var.correction", rows=rows_of("x", mixes="dims"))
def var(x: LiveTensor, dims: Dims, correction: float | None, keepdim: bool, out: LiveTensor) -> list[Route]:
    return reduce(x, out, dims, keepdim, VARIANCE, _correction(correction))


@op("aten.std.correction", rows=rows_of("x", mixes="dims"))
def std(x: LiveTensor, dims: Dims, correction: float | None, keepdim: bool, out: LiveTensor) -> list[Route]:
    return reduce(x, out, dims, keepdim, DEVIATION, _correction(correction))


@op("aten.var.dim", rows=rows_of("x", mixes="dims"))
def var_dim(x: LiveTensor, dims: Dims, unbiased: bool, keepdim: bool, out: LiveTensor) -> list[Route]:
    return reduce(x, out, dims, keepdim, VARIANCE, float(unbiased))


@op("aten.var_mean.correction", rows=rows_of("x", mixes="dims"))
def var_mean(
    x: LiveTensor, dims: Dims, correction: float | None, keepdim: bool, outs: Sequence[LiveTensor]
) -> list[Route]:
    variance, average = outs
    return combined(
        reduce(x, variance, dims, keepdim, VARIANCE, _correction(correction)),
        reduce(x, average, dims, keepdim, MEAN_OF_MOMENTS),
    )


def _correction(given: float | None) -> float:
    return 1.0 if given is None else given


@op("aten.logsumexp.default", rows=rows_of("x", mixes="dims"))
def logsumexp(x: LiveTensor, dims: Dims, keepdim: bool, out: LiveTensor) -> list[Route]:
    return reduce(x, out, dims, keepdim, LOG_SUM_EXP)


@op("aten.cumsum.default", rows=rows_of("x", mixes="dim"), integers=RUNNING_SUM)
def cumsum(x: LiveTensor, dim: int, dtype: Unused, out: LiveTensor) -> list[Dispatch]:
    return _scan(x, dim, out, "+")


@op("aten.cumprod.default", rows=rows_of("x", mixes="dim"), integers=RUNNING_PRODUCT)
def cumprod(x: LiveTensor, dim: int, dtype: Unused, out: LiveTensor) -> list[Dispatch]:
    return _scan(x, dim, out, "*")


def _scan(x: LiveTensor, dim: int, out: LiveTensor, operator: str) -> list[Dispatch]:
    out.resize(x.shape)
    d = dimension(dim, x.rank)
    shape = x.shape or (1,)
    inner = numel(shape[d + 1 :])
    rows = numel(shape[:d]) * inner
    wide, narrowing = wide_target(out)
    kind = scalar(out)
    code = f"""
fn merge(a: y_t, b: y_t) -> y_t {{ return {accumulated(kind, operator)}; }}
fn element(x: x_t) -> y_t {{ return {element_as(kind, x)}; }}
"""
    params = {"rows": rows, "width": shape[d], "inner": inner}
    return [Dispatch("scan", {"x": x, "y": wide}, params, threads(rows), code=code), *narrowing]
