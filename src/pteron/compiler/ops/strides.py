"""as_strided, diagonal and narrow. Each is one strided copy, as in `views`."""

from __future__ import annotations

from collections.abc import Sequence

from pteron.compiler.ir.integer_rules import moves
from pteron.compiler.ir.rule import (
    Dispatch,
    LiveTensor,
    Route,
    Shape,
    check,
    describe,
    op,
    reads_part_of,
)
from pteron.compiler.ops.copies import strided
from pteron.compiler.ops.shapes import contiguous, dimension
from pteron.compiler.ops.views import slice_copy


@op("aten.as_strided_copy.default", work=reads_part_of("x"), integers=moves("x"))
def as_strided(
    x: LiveTensor, size: Shape, stride: Sequence[int], storage_offset: int | None, out: LiveTensor
) -> Dispatch:
    """out[i..] = x[offset + i . stride]. x is read as one flat row."""
    offset = storage_offset or 0
    check(len(size) == len(stride), f"size {describe(size)} and stride {tuple(stride)} differ in length")
    check(
        offset >= 0 and all(step >= 0 for step in stride),
        f"stride {tuple(stride)} and storage_offset {offset} must not be negative",
    )
    last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    check(
        0 in size or last < x.numel,
        f"size {describe(size)} with stride {tuple(stride)} reads element {last}, "
        f"but x {describe(x.shape)} has {x.numel} elements",
    )
    out.resize(tuple(size))
    return strided(x, out, stride, offset)


@op("aten.diagonal_copy.default", work=reads_part_of("x"), integers=moves("x"))
def diagonal(x: LiveTensor, offset: int, dim1: int, dim2: int, out: LiveTensor) -> Dispatch:
    """The diagonal of two dimensions becomes the last dimension."""
    a, b = dimension(dim1, x.rank), dimension(dim2, x.rank)
    check(a != b, f"dim1 and dim2 must differ, both are {dim1}")
    strides = contiguous(x.shape)
    down, right = max(-offset, 0), max(offset, 0)
    length = max(0, min(x.shape[a] - down, x.shape[b] - right))
    kept = [d for d in range(x.rank) if d not in (a, b)]
    out.resize((*(x.shape[d] for d in kept), length))
    start = down * strides[a] + right * strides[b] if length else 0
    return strided(x, out, [*(strides[d] for d in kept), strides[a] + strides[b]], start)


@op("aten.narrow_copy.default", work=reads_part_of("x"), integers=moves("x"))
def narrow(x: LiveTensor, dim: int, start: int, length: int, out: LiveTensor) -> list[Route]:
    size = x.shape[dimension(dim, x.rank)]
    first = start + size if start < 0 else start
    check(
        first >= 0 and length >= 0 and first + length <= size,
        f"start {start} and length {length} do not fit dimension {dim} of live size {size}",
    )
    return slice_copy(x, dim, first, first + length, 1, out)  # type: ignore[no-any-return]
