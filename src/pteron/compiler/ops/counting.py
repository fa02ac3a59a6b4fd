"""Operators that count elements: masked_scatter, repeat_interleave, nonzero, masked_select.

The position of an element depends on the number of set elements before it. The first kernel counts the set
elements of each block. The second kernel adds these counts up. The third kernel numbers the elements of each
block.
"""

from __future__ import annotations

from collections.abc import Sequence

from pteron.compiler.ir.integer_rules import DECIDES, moves
from pteron.compiler.ir.rule import (
    Bound,
    Dispatch,
    DType,
    LiveTensor,
    Number,
    OpError,
    Scratch,
    check,
    describe,
    numel,
    op,
    quads,
    threads,
)
from pteron.compiler.ops.shapes import MAX_RANK, broadcast, broadcast_strides, merge

BLOCK = 128  # elements that one invocation counts
SUM = """
fn merge(a: y_t, b: y_t) -> y_t { return a + b; }
fn element(x: x_t) -> y_t { return y_t(x); }
"""


def blocks(count: int) -> int:
    return -(-count // BLOCK)


def running_total(x: LiveTensor | Scratch, count: int, out: Scratch) -> Dispatch:
    """out[i] = the sum of x[0] .. x[i]."""
    params = {"rows": 1 if count else 0, "width": count, "inner": 1}
    return Dispatch("scan", {"x": x, "y": out}, params, threads(1 if count else 0), code=SUM)


def number_set_elements(
    mask: Scratch | LiveTensor, count: int, most: int
) -> tuple[Scratch, Scratch, list[Dispatch]]:
    """Count the set elements of a mask that has `count` elements, and at most `most`.

    The result is the number of set elements before each element, the number at the end of each block, and the
    dispatches that compute both.
    """
    counts = Scratch("counts", 4 * max(1, blocks(most)), DType.int32)
    ends = Scratch("ends", 4 * max(1, blocks(most)), DType.int32)
    before = Scratch("before", 4 * max(1, most), DType.int32)
    params = {"count": count, "block": BLOCK}
    grid = threads(blocks(count))
    dispatches = [
        Dispatch("count_set", {"mask": mask, "counts": counts}, params, grid),
        running_total(counts, blocks(count), ends),
        Dispatch("number_set", {"mask": mask, "ends": ends, "before": before}, params, grid),
    ]
    return before, ends, dispatches


@op("aten.masked_scatter.default", integers=moves("x", "source"))
def masked_scatter(x: LiveTensor, mask: LiveTensor, source: LiveTensor, out: LiveTensor) -> list[Dispatch]:
    """Where the mask is set, the next element of `source`. Elsewhere x."""
    shape = broadcast(x.shape, mask.shape)
    out.resize(shape)
    check(source.numel > 0 or not out.numel, f"source {describe(source.shape)} has no elements")
    wide = Scratch("mask", max(4, numel(out.max_shape)), DType.bool)
    before, _, counting = number_set_elements(wide, out.numel, numel(out.max_shape))
    sizes, (walk,) = merge(shape, broadcast_strides(x.shape, shape))
    params: dict[str, Number] = {
        "quads": quads(out.numel),
        "available": source.numel,
        "rank": len(sizes),
        "sizes": sizes,
        "strides": walk,
    }
    bindings: dict[str, Bound] = {"x": x, "mask": wide, "before": before, "source": source, "y": out}
    return [
        broadcast_copy(mask, shape, wide),
        *counting,
        Dispatch("masked_scatter", bindings, params, threads(quads(out.numel))),
    ]


def broadcast_copy(x: LiveTensor, shape: tuple[int, ...], out: Scratch) -> Dispatch:
    """Copy a tensor, broadcast to a shape."""
    sizes, (walk,) = merge(shape, broadcast_strides(x.shape, shape))
    count = quads(numel(shape))
    params: dict[str, Number] = {
        "quads": count,
        "rank": len(sizes),
        "offset": 0,
        "sizes": sizes,
        "strides": walk,
    }
    return Dispatch("strided_copy", {"x": x, "y": out}, params, threads(count))


# -- results whose length depends on data ----------------------------------------------------------


@op("aten.nonzero.default", integers=DECIDES)
def nonzero(x: LiveTensor, outs: Sequence[LiveTensor]) -> list[Dispatch]:
    """The coordinates of every element that is not 0, and their number."""
    places, total = outs
    check(x.rank <= MAX_RANK, f"x {describe(x.shape)} has more than {MAX_RANK} dimensions")
    places.resize((x.numel, x.rank))
    before, ends, counting = number_set_elements(x, x.numel, numel(x.max_shape))
    params: dict[str, Number] = {"count": x.numel, "rank": x.rank, "sizes": x.shape}
    bindings: dict[str, Bound] = {"x": x, "before": before, "y": places}
    return [
        *counting,
        Dispatch("nonzero", bindings, params, threads(x.numel)),
        store_total(ends, x.numel, total),
    ]


@op("aten.masked_select.default", integers=moves("x", places=True))
def masked_select(x: LiveTensor, mask: LiveTensor, outs: Sequence[LiveTensor]) -> list[Dispatch]:
    """The elements of x where the mask is set, and their number."""
    shape = broadcast(x.shape, mask.shape)
    out, total = outs
    out.resize((numel(shape),))
    most = numel(out.max_shape)
    wide = Scratch("wide", max(16, most * x.dtype.itemsize), x.dtype)
    flags = Scratch("mask", max(16, most), DType.bool)
    return [
        broadcast_copy(x, shape, wide),
        broadcast_copy(mask, shape, flags),
        *gather_masked_rows(wide, flags, numel(shape), most, out, total),
    ]


@op("pteron.select_rows", integers=moves("x", places=True))
def select_rows(x: LiveTensor, mask: LiveTensor, outs: Sequence[LiveTensor]) -> list[Dispatch]:
    """x[mask]: the rows of x where the mask is set, and their number. The mask covers the first dims of x."""
    lead, rest = x.shape[: mask.rank], x.shape[mask.rank :]
    check(
        mask.rank > 0 and lead == mask.shape,
        f"the mask {describe(mask.shape)} does not cover the first dimensions of x {describe(x.shape)}",
    )
    out, total = outs
    out.resize((mask.numel, *rest))
    return gather_masked_rows(x, mask, mask.numel, numel(mask.max_shape), out, total)


def gather_masked_rows(
    x: LiveTensor | Scratch,
    mask: LiveTensor | Scratch,
    count: int,
    most: int,
    out: LiveTensor,
    total: LiveTensor,
) -> list[Dispatch]:
    """The rows of x where the mask is set. x has `count` rows, and at most `most`."""
    before, ends, counting = number_set_elements(mask, count, most)
    places = Scratch("places", 4 * max(1, most), DType.int32)
    row = numel(out.shape[1:])
    listing: dict[str, Bound] = {"mask": mask, "before": before, "places": places}
    taking: dict[str, Bound] = {"x": x, "places": places, "y": out}
    params = {"quads": quads(out.numel), "row": row, "count": count}
    return [
        *counting,
        Dispatch("list_set", listing, {"count": count}, threads(count)),
        Dispatch("take_rows", taking, params, threads(quads(out.numel))),
        store_total(ends, count, total),
    ]


def store_total(ends: Scratch, count: int, total: LiveTensor) -> Dispatch:
    total.resize((1,))
    return Dispatch("store_total", {"ends": ends, "y": total}, {"blocks": blocks(count)}, (1, 1, 1))


# -- repetition ------------------------------------------------------------------------------------


@op("aten.repeat_interleave.Tensor")
def repeat_interleave(repeats: LiveTensor, output_size: int | None, out: LiveTensor) -> list[Dispatch]:
    """The number i, repeats[i] times, for every i."""
    check(repeats.rank == 1, f"repeats must have one dimension, not shape {describe(repeats.shape)}")
    if output_size is None:
        raise OpError(
            "output_size is missing: without it the size of the result depends on the contents of repeats. "
            "Pass output_size= to torch.repeat_interleave"
        )
    out.resize((output_size,))
    count = repeats.numel
    check(count > 0 or not output_size, "there is nothing to repeat")
    ends = Scratch("ends", 4 * max(1, numel(repeats.max_shape)), DType.int32)
    params = {"quads": quads(out.numel), "count": count}
    return [
        running_total(repeats, count, ends),
        Dispatch("repeat_interleave", {"ends": ends, "y": out}, params, threads(quads(out.numel))),
    ]
