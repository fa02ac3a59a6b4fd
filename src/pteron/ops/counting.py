"""Operators that count as they go: masked_scatter, and repeat_interleave.

Where an element goes depends on how many came before it. The mask is counted block by block, the blocks'
counts are summed up, and each block then numbers its own elements.
"""

from __future__ import annotations

from pteron.ir.rule import (
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
from pteron.ops.shapes import broadcast, broadcast_strides, merge

BLOCK = 128  # elements that one invocation counts
SUM = "fn merge(a: y_t, b: y_t) -> y_t { return a + b; }"


def blocks(count: int) -> int:
    return -(-count // BLOCK)


def running_total(x: LiveTensor | Scratch, count: int, out: Scratch) -> Dispatch:
    """out[i] = the sum of x[0] .. x[i]."""
    params = {"rows": 1 if count else 0, "width": count, "inner": 1}
    return Dispatch("scan", {"x": x, "y": out}, params, threads(1 if count else 0), code=SUM)


def numbered(mask: Scratch | LiveTensor, count: int, most: int) -> tuple[Scratch, list[Dispatch]]:
    """How many elements before each of `count` are set, and the dispatches that find out."""
    counts = Scratch("counts", 4 * max(1, blocks(most)), DType.int32)
    ends = Scratch("ends", 4 * max(1, blocks(most)), DType.int32)
    before = Scratch("before", 4 * max(1, most), DType.int32)
    params = {"count": count, "block": BLOCK}
    grid = threads(blocks(count))
    return before, [
        Dispatch("count_set", {"mask": mask, "counts": counts}, params, grid),
        running_total(counts, blocks(count), ends),
        Dispatch("number_set", {"mask": mask, "ends": ends, "before": before}, params, grid),
    ]


@op("aten.masked_scatter.default")
def masked_scatter(x: LiveTensor, mask: LiveTensor, source: LiveTensor, out: LiveTensor) -> list[Dispatch]:
    """Where the mask is set, the elements of `source` in their order; elsewhere x."""
    shape = broadcast(x.shape, mask.shape)
    out.resize(shape)
    check(source.numel > 0 or not out.numel, f"source {describe(source.shape)} has no elements")
    wide = Scratch("mask", max(4, numel(out.max_shape)), DType.bool)
    before, counting = numbered(wide, out.numel, numel(out.max_shape))
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
        spread_mask(mask, shape, wide),
        *counting,
        Dispatch("masked_scatter", bindings, params, threads(quads(out.numel))),
    ]


def spread_mask(mask: LiveTensor, shape: tuple[int, ...], out: Scratch) -> Dispatch:
    """The mask broadcast to a shape."""
    sizes, (walk,) = merge(shape, broadcast_strides(mask.shape, shape))
    count = quads(numel(shape))
    params: dict[str, Number] = {
        "quads": count,
        "rank": len(sizes),
        "offset": 0,
        "sizes": sizes,
        "strides": walk,
    }
    return Dispatch("strided_copy", {"x": mask, "y": out}, params, threads(count))


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
