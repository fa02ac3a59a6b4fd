"""sort and topk."""

from __future__ import annotations

from collections.abc import Sequence

from pteron.ir.rule import Dispatch, LiveTensor, check, numel, op, rows_of, threads
from pteron.ops.index import read_indexed
from pteron.ops.shapes import contiguous, dimension


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
    order = "above(a, b)" if descending else "above(b, a)"
    if not x.dtype.is_float:
        order = f"i{order}"
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


@op("aten.topk.default", rows=rows_of("x", mixes="dim"))
def topk(
    x: LiveTensor, k: int, dim: int, largest: bool, is_sorted: bool, outs: Sequence[LiveTensor]
) -> list[Dispatch]:
    return sort_rows(x, dim, k, largest, outs)


@op("aten.sort.default", rows=rows_of("x", mixes="dim"))
def sort(x: LiveTensor, dim: int, descending: bool, outs: Sequence[LiveTensor]) -> list[Dispatch]:
    return sort_rows(x, dim, (x.shape or (1,))[dimension(dim, x.rank)], descending, outs)


@op("aten.sort.stable", rows=rows_of("x", mixes="dim"))
def sort_stable(
    x: LiveTensor, stable: bool | None, dim: int, descending: bool, outs: Sequence[LiveTensor]
) -> list[Dispatch]:
    return sort_rows(x, dim, (x.shape or (1,))[dimension(dim, x.rank)], descending, outs)
