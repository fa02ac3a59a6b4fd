"""Operators that move elements and compute nothing: views, slices, permutations, repetitions.

If the elements keep their order, the output is an alias of the input. Then no kernel runs, unless the input
is written in place later. The other operators are one strided copy.
"""

from __future__ import annotations

from collections.abc import Sequence

from pteron.compiler.ir.integer_rules import moves, or_zero
from pteron.compiler.ir.rule import (
    ELEMENTWISE,
    EXPANDED,
    PERMUTED,
    RESHAPED,
    VIEWED,
    Dispatch,
    LiveTensor,
    Route,
    Shape,
    Unused,
    check,
    describe,
    numel,
    op,
    quads,
    reads_part_of,
    rows_of,
    threads,
)
from pteron.compiler.ops.copies import strided, strided_routes
from pteron.compiler.ops.shapes import broadcast_strides, contiguous, dimension

OPEN_END = 2**31 - 1  # from this value on, the `end` of a slice is the end of the dimension


# -- the same elements in the same order ----------------------------------------------------------


@op("aten.view_copy.default", "aten._unsafe_view.default", alias="x", rows=VIEWED)
def view(x: LiveTensor, size: Shape, out: LiveTensor) -> None:
    out.resize(resolve_size(x.numel, size))


def resolve_size(count: int, size: Shape) -> Shape:
    """The size with its -1, if it has one, replaced by the size that fits `count` elements."""
    if -1 in size:
        rest = -numel(size)
        check(rest > 0 and count % rest == 0, f"{count} elements cannot be viewed as {describe(size)}")
        size = tuple(count // rest if n == -1 else n for n in size)
    check(numel(size) == count, f"{count} elements cannot be viewed as {describe(size)}")
    return size


@op(
    "pteron.copy",
    "aten.alias_copy.default",
    "aten.detach_copy.default",
    "aten.lift_fresh_copy.default",
    "et_copy._h2d_copy.default",
    "et_copy._d2h_copy.default",
    alias="x",
    rows=ELEMENTWISE,
)
def copy(x: LiveTensor, out: LiveTensor) -> None:
    out.resize(x.shape)


@op("aten.clone.default", alias="x", rows=ELEMENTWISE)
def clone(x: LiveTensor, memory_format: Unused, out: LiveTensor) -> None:
    out.resize(x.shape)


@op("dim_order_ops._clone_dim_order.default", alias="x", rows=ELEMENTWISE)
def clone_dim_order(x: LiveTensor, non_blocking: Unused, dim_order: Unused, out: LiveTensor) -> None:
    out.resize(x.shape)


@op("aten.squeeze_copy.dims", "aten.squeeze_copy.dim", alias="x", rows=RESHAPED)
def squeeze(x: LiveTensor, dims: Sequence[int] | int, out: LiveTensor) -> None:
    # A dimension is removed if its largest size is 1: the rank must not depend on the live shape.
    gone = {dimension(d, x.rank) for d in ([dims] if isinstance(dims, int) else dims)}
    out.resize(tuple(n for d, n in enumerate(x.shape) if d not in gone or x.max_shape[d] != 1))


@op("aten.squeeze_copy.default", alias="x", rows=RESHAPED)
def squeeze_all(x: LiveTensor, out: LiveTensor) -> None:
    squeeze(x, range(x.rank), out)


@op("aten.unsqueeze_copy.default", alias="x", rows=RESHAPED)
def unsqueeze(x: LiveTensor, dim: int, out: LiveTensor) -> None:
    at = dimension(dim, x.rank + 1)
    out.resize((*x.shape[:at], 1, *x.shape[at:]))


# -- one strided copy -----------------------------------------------------------------------------


@op("aten.permute_copy.default", "aten.permute.default", rows=PERMUTED, integers=moves("x"))
def permute(x: LiveTensor, dims: Sequence[int], out: LiveTensor) -> list[Route]:
    order = [dimension(d, x.rank) for d in dims]
    check(sorted(order) == list(range(x.rank)), f"dims {describe(tuple(dims))} do not permute rank {x.rank}")
    strides = contiguous(x.shape)
    out.resize(tuple(x.shape[d] for d in order))
    return strided_routes(x, out, [strides[d] for d in order])


@op("aten.t_copy.default", rows=PERMUTED, integers=moves("x"))
def transpose_2d(x: LiveTensor, out: LiveTensor) -> list[Route]:
    return permute(x, tuple(reversed(range(x.rank))), out)  # type: ignore[no-any-return]


@op("aten.transpose_copy.int", rows=PERMUTED, integers=moves("x"))
def transpose(x: LiveTensor, dim0: int, dim1: int, out: LiveTensor) -> list[Route]:
    order = list(range(x.rank))
    a, b = dimension(dim0, x.rank), dimension(dim1, x.rank)
    if order:  # a number has no dimension to swap, but torch takes 0 and -1
        order[a], order[b] = order[b], order[a]
    return permute(x, order, out)  # type: ignore[no-any-return]


@op("aten.slice_copy.Tensor", work=reads_part_of("x"), rows=rows_of("x", mixes="dim"), integers=moves("x"))
def slice_copy(
    x: LiveTensor, dim: int, start: int | None, end: int | None, step: int, out: LiveTensor
) -> list[Route]:
    d = dimension(dim, x.rank)
    first, length = slice_of(start, end, step, x.shape[d])
    strides = list(contiguous(x.shape))
    offset = first * strides[d]
    strides[d] *= step
    out.resize((*x.shape[:d], length, *x.shape[d + 1 :]))
    return strided_routes(x, out, strides, offset)


def slice_of(start: int | None, end: int | None, step: int, size: int) -> tuple[int, int]:
    """The first index of a slice of a dimension of this live size, and the number of its elements."""
    check(step >= 1, f"step must be at least 1, not {step}")
    first = 0 if start is None else _within(start, size)
    last = size if end is None or end >= OPEN_END else _within(end, size)
    return first, max(0, -((first - last) // step))


def _within(place: int, size: int) -> int:
    """A place in a dimension of this size. One below 0 counts from the end."""
    return max(0, min(place + size if place < 0 else place, size))


@op("aten.split_with_sizes_copy.default", rows=rows_of("x", mixes="dim"), integers=moves("x"))
def split_with_sizes(
    x: LiveTensor, sizes: Sequence[int], dim: int, outs: Sequence[LiveTensor]
) -> list[Dispatch]:
    d = dimension(dim, x.rank)
    check(
        sum(sizes) == x.shape[d] and len(sizes) == len(outs),
        f"sizes {describe(tuple(sizes))} do not split dimension {d} of live size {x.shape[d]}",
    )
    strides = contiguous(x.shape)
    dispatches, start = [], 0
    for size, out in zip(sizes, outs, strict=True):
        out.resize((*x.shape[:d], size, *x.shape[d + 1 :]))
        dispatches.append(strided(x, out, strides, start * strides[d]))
        start += size
    return dispatches


@op("aten.split_copy.Tensor", rows=rows_of("x", mixes="dim"), integers=moves("x"))
def split(x: LiveTensor, split_size: int, dim: int, outs: Sequence[LiveTensor]) -> list[Dispatch]:
    # The number of outputs is fixed. At a small live size the last outputs are short or empty.
    size = x.shape[dimension(dim, x.rank)]
    sizes = [max(0, min(split_size, size - n * split_size)) for n in range(len(outs))]
    return split_with_sizes(x, sizes, dim, outs)  # type: ignore[no-any-return]


@op("aten.unbind_copy.int", rows=rows_of("x", mixes="dim"), integers=moves("x"))
def unbind(x: LiveTensor, dim: int, outs: Sequence[LiveTensor]) -> list[Dispatch]:
    d = dimension(dim, x.rank)
    check(
        x.shape[d] == len(outs),
        f"the program unbinds dimension {d} into {len(outs)} tensors, but its live size is {x.shape[d]}",
    )
    strides = contiguous(x.shape)
    for out in outs:
        out.resize(x.shape[:d] + x.shape[d + 1 :])
    rest = strides[:d] + strides[d + 1 :]
    return [strided(x, out, rest, index * strides[d]) for index, out in enumerate(outs)]


@op("aten.unfold_copy.default", work=reads_part_of("x"), integers=moves("x"))
def unfold(x: LiveTensor, dim: int, size: int, step: int, out: LiveTensor) -> Dispatch:
    """Windows of `size` elements become the last dimension. They start `step` elements apart."""
    d = dimension(dim, x.rank)
    check(
        step >= 1 and size <= x.shape[d],
        f"windows of {size}, {step} apart, do not fit a live size of {x.shape[d]}",
    )
    strides = list(contiguous(x.shape))
    out.resize((*x.shape[:d], (x.shape[d] - size) // step + 1, *x.shape[d + 1 :], size))
    return strided(x, out, [*strides[:d], strides[d] * step, *strides[d + 1 :], strides[d]])


@op("aten.select_copy.int", work=reads_part_of("x"), rows=rows_of("x", mixes="dim"), integers=moves("x"))
def select(x: LiveTensor, dim: int, index: int, out: LiveTensor) -> list[Route]:
    d = dimension(dim, x.rank)
    size = x.shape[d]
    check(-size <= index < size, f"index {index} is out of range for dimension {d} of live size {size}")
    strides = contiguous(x.shape)
    out.resize(x.shape[:d] + x.shape[d + 1 :])
    return strided_routes(x, out, strides[:d] + strides[d + 1 :], (index % size) * strides[d])


@op("aten.expand_copy.default", rows=EXPANDED, integers=moves("x"))
def expand(x: LiveTensor, size: Shape, implicit: bool, out: LiveTensor) -> list[Route]:
    lead = len(size) - x.rank
    check(lead >= 0, f"{describe(x.shape)} cannot be expanded to the smaller rank of {describe(size)}")
    padded = (1,) * lead + x.shape
    shape = tuple(have if want == -1 else want for have, want in zip(padded, size, strict=True))
    for have, want in zip(padded, shape, strict=True):
        check(have in (1, want), f"{describe(x.shape)} cannot be expanded to {describe(size)}")
    out.resize(shape)
    return strided_routes(x, out, broadcast_strides(x.shape, shape))


@op("aten.repeat.default", integers=moves("x"))
def repeat(x: LiveTensor, repeats: Sequence[int], out: LiveTensor) -> Dispatch:
    lead = len(repeats) - x.rank
    check(lead >= 0, f"{len(repeats)} repeats are too few for shape {describe(x.shape)}")
    padded = (1,) * lead + x.shape
    out.resize(tuple(n * times for n, times in zip(padded, repeats, strict=True)))
    # Each dimension becomes two: the repetition, with stride 0, and the dimension itself.
    strides = contiguous(padded)
    shape = tuple(part for pair in zip(repeats, padded, strict=True) for part in pair)
    return strided(x, out, [step for stride in strides for step in (0, stride)], viewed=shape)


@op("aten.flip.default", rows=rows_of("x", mixes="dims"), integers=moves("x"))
def flip(x: LiveTensor, dims: Sequence[int], out: LiveTensor) -> Dispatch:
    strides = list(contiguous(x.shape))
    offset = 0
    for d in {dimension(d, x.rank) for d in dims}:
        offset += strides[d] * (x.shape[d] - 1)
        strides[d] = -strides[d]
    out.resize(x.shape)
    return strided(x, out, strides, offset)


@op("aten.tril.default", integers=moves("x", interval=or_zero))
def tril(x: LiveTensor, diagonal: int, out: LiveTensor) -> Dispatch:
    return _triangle(x, diagonal, out, upper=False)


@op("aten.triu.default", integers=moves("x", interval=or_zero))
def triu(x: LiveTensor, diagonal: int, out: LiveTensor) -> Dispatch:
    return _triangle(x, diagonal, out, upper=True)


def _triangle(x: LiveTensor, diagonal: int, out: LiveTensor, *, upper: bool) -> Dispatch:
    check(x.rank >= 2, f"x must have at least 2 dimensions, not shape {describe(x.shape)}")
    out.resize(x.shape)
    rows, columns = x.shape[-2:]
    params = {"quads": quads(x.numel), "rows": rows, "columns": columns, "diagonal": diagonal}
    return Dispatch("triangle", {"x": x, "y": out}, params, threads(quads(x.numel)), {"UPPER": upper})
