"""Sorting, the largest elements, and places among sorted numbers."""

from __future__ import annotations

from collections.abc import Sequence

from pteron.compiler.ir.integer_rules import SORTED
from pteron.compiler.ir.rule import (
    Dispatch,
    DType,
    LiveTensor,
    check,
    describe,
    numel,
    op,
    quads,
    rows_of,
    threads,
)
from pteron.compiler.ops.index import read_indexed
from pteron.compiler.ops.reduce import order_of
from pteron.compiler.ops.shapes import contiguous, dimension


def sort_rows(
    x: LiveTensor, dim: int, kept: int, descending: bool, outs: Sequence[LiveTensor]
) -> list[Dispatch]:
    """outs = the first `kept` elements of x in sorted order along a dimension, and their indices."""
    values, places = outs
    d = dimension(dim, x.rank)
    shape = x.shape or (1,)
    width, inner = shape[d], numel(shape[d + 1 :])
    check(0 <= kept <= width, f"k is {kept}, but dimension {d} has a live size of {width}")
    short = (*shape[:d], kept, *shape[d + 1 :])
    values.resize(short if x.rank else ())
    places.resize(short if x.rank else ())
    # NaN is larger than all numbers, as in torch: first in descending order, last in ascending order.
    above = order_of(x, "above")
    order = f"{above}(a, b)" if descending else f"{above}(b, a)"
    code = f"fn before(a: x_t, b: x_t) -> bool {{ return {order}; }}"
    params = {"count": x.numel, "width": width, "inner": inner, "kept": kept}
    ranking = Dispatch("sort", {"x": x, "order": places}, params, threads(x.numel), code=code)
    strides = list(contiguous(shape))
    stride, strides[d] = strides[d], 0
    if not x.rank:
        strides = []
    picking = read_indexed(
        x,
        places,
        values,
        x_strides=strides,
        index_strides=contiguous(places.shape),
        length=width,
        stride=stride,
    )
    return [ranking, picking]


@op("aten.topk.default", rows=rows_of("x", mixes="dim"), integers=SORTED)
def topk(
    x: LiveTensor, k: int, dim: int, largest: bool, is_sorted: bool, outs: Sequence[LiveTensor]
) -> list[Dispatch]:
    return sort_rows(x, dim, k, largest, outs)


@op("aten.sort.default", rows=rows_of("x", mixes="dim"), integers=SORTED)
def sort(x: LiveTensor, dim: int, descending: bool, outs: Sequence[LiveTensor]) -> list[Dispatch]:
    return sort_rows(x, dim, (x.shape or (1,))[dimension(dim, x.rank)], descending, outs)


@op("aten.sort.stable", rows=rows_of("x", mixes="dim"), integers=SORTED)
def sort_stable(
    x: LiveTensor, stable: bool | None, dim: int, descending: bool, outs: Sequence[LiveTensor]
) -> list[Dispatch]:
    return sort_rows(x, dim, (x.shape or (1,))[dimension(dim, x.rank)], descending, outs)


@op("aten.bucketize.Tensor", rows=rows_of("x"))
def bucketize(
    x: LiveTensor, boundaries: LiveTensor, out_int32: bool, right: bool, out: LiveTensor
) -> Dispatch:
    """The number of boundaries below each element, or not above it if `right`. The boundaries are sorted."""
    check(boundaries.rank == 1, f"boundaries must have one dimension, not shape {describe(boundaries.shape)}")
    check(DType.int64 not in (x.dtype, boundaries.dtype), "the numbers must fit in 32 bits")
    out.resize(x.shape)
    kind = "f32" if x.dtype.is_float or boundaries.dtype.is_float else "i32"
    beyond = f"{kind}(boundary) {'>' if right else '>='} {kind}(x)"
    code = f"fn is_beyond(boundary: boundaries_t, x: x_t) -> bool {{ return {beyond}; }}"
    params = {"quads": quads(x.numel), "count": boundaries.numel}
    bound = {"x": x, "boundaries": boundaries, "y": out}
    return Dispatch("search", bound, params, threads(quads(x.numel)), code=code)
