"""Operators that write a part of a tensor: concatenation, stores into slices, KV caches.

A part may begin inside a word. Each invocation writes whole words of the target. In a word at the edge of the
part, it keeps the other elements. So no two invocations write to the same word.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from pteron.compiler.ir.integer_rules import moves
from pteron.compiler.ir.rule import (
    Bound,
    Dispatch,
    DType,
    LiveArguments,
    LiveInt,
    LiveTensor,
    OpError,
    Route,
    Segmented,
    Unused,
    Work,
    check,
    copy_dispatch,
    describe,
    numel,
    op,
    quads,
    rows_of,
    threads,
)
from pteron.compiler.ops.shapes import dimension
from pteron.compiler.ops.views import slice_of


def write_slice(x: LiveTensor, y: LiveTensor, dim: int, start: int, length: int, step: int = 1) -> Dispatch:
    """y[.., start : : step, ..] = x, for `length` indices of one dimension. The rest of y does not change."""
    total, inner = y.shape[dim], numel(y.shape[dim + 1 :])
    first, last = 0, y.numel
    if numel(y.shape[:dim]) == 1:  # the slice is one range of memory
        first, last = start * inner, min(last, (start + length * step) * inner)
    count = quads(last) - first // 4 if length and y.numel else 0
    params = {
        "first": first // 4,
        "quads": count,
        "inner": inner,
        "length": length,
        "total": total,
        "start": start,
        "step": step,
    }
    return Dispatch("strided_write", {"x": x, "y": y}, params, threads(count))


def joined(parts: Sequence[LiveTensor], y: LiveTensor, dim: int, lengths: Sequence[int]) -> list[Route]:
    """y is made of parts with these lengths, one after another along a dimension."""
    starts = [0, *accumulate(lengths)]
    inner = numel(y.shape[dim + 1 :])
    elements = [
        write_slice(x, y, dim, start, length)
        for x, start, length in zip(parts, starts, lengths, strict=False)
    ]
    in_quads = [
        _copy_quads(x, y, start * inner, y.shape[dim] * inner, length * inner)
        for x, start, length in zip(parts, starts, lengths, strict=False)
    ]
    fits = all(length * inner % 4 == 0 for length in lengths)
    in_order = Route("elements", elements)
    return [in_order] if y.dtype is DType.int64 else [Route("quads", in_quads, when=fits), in_order]


def _copy_quads(x: LiveTensor, y: LiveTensor, start: int, total: int, run: int) -> Dispatch:
    count = quads(x.numel) if y.numel else 0
    params = {"quads": count, "run": max(1, run // 4), "total": total // 4, "start": start // 4}
    return Dispatch("slice_quads", {"x": x, "y": y}, params, threads(count))


@op("aten.cat.default", rows=rows_of("tensors", mixes="dim"), integers=moves("tensors"))
def cat(tensors: Sequence[LiveTensor], dim: int, out: LiveTensor) -> list[Route]:
    check(bool(tensors), "there is nothing to concatenate")
    # torch ignores a tensor of shape [0], whatever the rank of the others.
    parts = [x for x in tensors if x.max_shape != (0,)] or tensors[:1]
    d = dimension(dim, parts[0].rank)
    rest = parts[0].shape[:d] + parts[0].shape[d + 1 :]
    for n, x in enumerate(parts):
        if x.rank != parts[0].rank or x.shape[:d] + x.shape[d + 1 :] != rest:
            raise OpError(
                f"input {n} has live shape {describe(x.shape)}: all but dimension {d} must match input 0, "
                f"{describe(parts[0].shape)}"
            )
    total = sum(x.shape[d] for x in parts)
    out.resize((*parts[0].shape[:d], total, *parts[0].shape[d + 1 :]))
    return joined(parts, out, d, [x.shape[d] for x in parts])


@op("aten.stack.default", integers=moves("tensors"))
def stack(tensors: Sequence[LiveTensor], dim: int, out: LiveTensor) -> list[Route]:
    shape = tensors[0].shape
    for n, x in enumerate(tensors):
        check(
            x.shape == shape,
            f"input {n} has live shape {describe(x.shape)}, but input 0 has {describe(shape)}",
        )
    d = dimension(dim, len(shape) + 1)
    out.resize((*shape[:d], len(tensors), *shape[d:]))
    return joined(tensors, out, d, [1] * len(tensors))


@op("aten.slice_scatter.default", integers=moves("x", "source"))
def slice_scatter(
    x: LiveTensor,
    source: LiveTensor,
    dim: int,
    start: int | None,
    end: int | None,
    step: int,
    out: LiveTensor,
) -> list[Dispatch]:
    d = dimension(dim, x.rank)
    first, length = slice_of(start, end, step, x.shape[d])
    wanted = (*x.shape[:d], length, *x.shape[d + 1 :])
    check(
        source.shape == wanted, f"source has shape {describe(source.shape)}, but the slice {describe(wanted)}"
    )
    out.resize(x.shape)
    return [copy_dispatch(x, out), write_slice(source, out, d, first, length, step)]


@op("aten.select_scatter.default", integers=moves("x", "source"))
def select_scatter(
    x: LiveTensor, source: LiveTensor, dim: int, index: int, out: LiveTensor
) -> list[Dispatch]:
    d = dimension(dim, x.rank)
    size = x.shape[d]
    check(-size <= index < size, f"index {index} is out of range for dimension {d} of live size {size}")
    wanted = x.shape[:d] + x.shape[d + 1 :]
    check(source.shape == wanted, f"source has shape {describe(source.shape)}, not {describe(wanted)}")
    out.resize(x.shape)
    return [copy_dispatch(x, out), write_slice(source, out, d, index % size if size else 0, 1)]


@op("pteron.write_back", mutates=["target"], integers=moves("x", "target"))
def write_back(x: LiveTensor, target: LiveTensor, out: None) -> Dispatch:
    check(
        x.shape == target.shape, f"a buffer of shape {describe(target.shape)} cannot hold {describe(x.shape)}"
    )
    words = quads(x.nbytes)
    return Dispatch("copy", {"x": x, "y": target}, {"words": words}, threads(words))


def _update_work(call: LiveArguments) -> Work:
    """Only the new rows of the cache are written."""
    return Work(parts={"cache": call["value"].nbytes})


@op(
    "update_cache.default",
    mutates=["cache"],
    uniforms=["start_pos"],
    work=_update_work,
    rows=Segmented("pteron.segmented_update_cache", at="start_pos", rows=("value",), caches=("cache",)),
)
def update_cache(
    value: LiveTensor, cache: LiveTensor, start_pos: LiveInt, out: LiveTensor | None
) -> Dispatch:
    return cache_update(value, cache, start_pos)


@op(
    "update_cache_with_indices.default",
    mutates=["cache"],
    work=_update_work,
    integers=moves("value", "cache", indices=("indices",)),
)
def update_cache_with_indices(
    value: LiveTensor, cache: LiveTensor, start_pos: Unused, indices: LiveTensor, out: LiveTensor | None
) -> Dispatch:
    """cache[b, indices[b, s]] = value[b, s]: the rows of a ring."""
    check_fits(value, cache)
    check(
        indices.shape == value.shape[:2],
        f"indices have shape {describe(indices.shape)}, but there are {describe(value.shape[:2])} values",
    )
    capacity, width = cache.shape[1], numel(cache.shape[2:])
    indices.require_contents(0, capacity - 1, f"an index into a cache of {capacity} positions")
    whole = numel(cache.max_shape[2:]) % 4 == 0
    count = quads(value.numel if whole else cache.numel) if value.numel else 0
    params = {"quads": count, "length": value.shape[1], "width": width, "capacity": capacity}
    bindings = {"x": value, "indices": indices, "cache": cache}
    return Dispatch("cache_scatter", bindings, params, threads(count), {"WHOLE": whole})


def cache_update(value: LiveTensor, cache: LiveTensor, start_pos: LiveInt) -> Dispatch:
    """cache[:, start_pos : start_pos + S] = value, for [B, S, H, D] into [B, capacity, H, D]."""
    check_room(value, cache, start_pos)
    batch, width = value.shape[0], numel(value.shape[2:])
    row = value.shape[1] * width
    touched = quads(row) + 1 if row else 0  # a row that starts inside a quad touches one quad more
    params = {
        "batch": batch,
        "quads": touched,
        "row": row,
        "cache_row": cache.shape[1] * width,
        "width": width,
    }
    bindings: dict[str, Bound] = {"x": value, "cache": cache, "start_pos": start_pos}
    return Dispatch("cache_update", bindings, params, threads(batch * touched))


def check_fits(value: LiveTensor, cache: LiveTensor) -> None:
    """Refuse values whose rows are not those of the cache."""
    fits = (
        value.rank == cache.rank >= 2
        and value.shape[0] == cache.shape[0]
        and value.shape[2:] == cache.shape[2:]
    )
    check(
        fits, f"values of shape {describe(value.shape)} do not fit a cache of shape {describe(cache.shape)}"
    )


def check_room(value: LiveTensor, cache: LiveTensor, start_pos: LiveInt) -> None:
    """Refuse values that do not fit in the cache, at this position and at later ones."""
    check_fits(value, cache)
    length, capacity = value.shape[1], cache.shape[1]
    check(length <= capacity, f"{length} new positions do not fit a cache of {capacity}")
    start_pos.require(
        0,
        capacity - length,
        f"position {{value}} plus {length} new tokens does not fit the cache of {capacity} positions",
    )
