"""Operators that move elements and compute nothing: views, slices, permutations, concatenation.

Those whose elements keep their order are aliases: no kernel runs, unless the source is later
written in place. The others are one strided copy, driven by the output.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from pteron.graph.dispatch import Dispatch, Number, describe, quads, threads
from pteron.graph.live import LiveInt, LiveTensor
from pteron.graph.op import OpError, check, op
from pteron.graph.values import Shape, numel
from pteron.ops.shapes import broadcast_strides, contiguous, dimension, merge

END = 2**31 - 1  # an `end` that the exporter left open


def strided(
    x: LiveTensor, out: LiveTensor, strides: Sequence[int], offset: int = 0, viewed: Shape | None = None
) -> Dispatch:
    """out[i..] = x[offset + i . strides]: i runs over the live shape of `out`, or what it is `viewed` as."""
    sizes, (walk,) = merge(out.shape if viewed is None else viewed, strides)
    params: dict[str, Number] = {
        "quads": quads(out.numel),
        "rank": len(sizes),
        "offset": offset,
        "sizes": sizes,
        "strides": walk,
    }
    return Dispatch("strided_copy", {"x": x, "y": out}, params, threads(quads(out.numel)))


# -- the same elements in the same order ----------------------------------------------------------


@op("aten.view_copy.default", alias="x")
def view(x: LiveTensor, size: Shape, out: LiveTensor) -> None:
    out.resize(resolve_size(x.numel, size))


def resolve_size(count: int, size: Shape) -> Shape:
    """A size list with at most one -1, which is what is left over."""
    if -1 in size:
        rest = -numel(size)
        check(rest > 0 and count % rest == 0, f"{count} elements cannot be viewed as {describe(size)}")
        size = tuple(count // rest if n == -1 else n for n in size)
    check(numel(size) == count, f"{count} elements cannot be viewed as {describe(size)}")
    return size


@op("pteron.copy", "aten.alias_copy.default", "aten.detach_copy.default", alias="x")
def copy(x: LiveTensor, out: LiveTensor) -> None:
    out.resize(x.shape)


@op("aten.clone.default", alias="x")
def clone(x: LiveTensor, memory_format: Any, out: LiveTensor) -> None:
    out.resize(x.shape)


@op("dim_order_ops._clone_dim_order.default", alias="x")
def clone_dim_order(x: LiveTensor, non_blocking: Any, dim_order: Any, out: LiveTensor) -> None:
    out.resize(x.shape)


@op("aten.squeeze_copy.dims", alias="x")
def squeeze(x: LiveTensor, dims: Sequence[int], out: LiveTensor) -> None:
    # Whether a dimension goes is decided by its largest size: a rank never changes with the live shape.
    gone = {dimension(d, x.rank) for d in dims}
    out.resize(tuple(n for d, n in enumerate(x.shape) if d not in gone or x.max_shape[d] != 1))


@op("aten.unsqueeze_copy.default", alias="x")
def unsqueeze(x: LiveTensor, dim: int, out: LiveTensor) -> None:
    at = dimension(dim, x.rank + 1)
    out.resize((*x.shape[:at], 1, *x.shape[at:]))


@op("pteron.write_back", mutates=["target"])
def write_back(x: LiveTensor, target: LiveTensor, out: None) -> Dispatch:
    check(
        x.shape == target.shape, f"a buffer of shape {describe(target.shape)} cannot hold {describe(x.shape)}"
    )
    words = quads(x.nbytes)
    return Dispatch("copy", {"x": x, "y": target}, {"words": words}, threads(words))


# -- one strided copy -----------------------------------------------------------------------------


@op("aten.permute_copy.default", "aten.permute.default")
def permute(x: LiveTensor, dims: Sequence[int], out: LiveTensor) -> Dispatch:
    order = [dimension(d, x.rank) for d in dims]
    check(sorted(order) == list(range(x.rank)), f"dims {describe(tuple(dims))} do not permute rank {x.rank}")
    strides = contiguous(x.shape)
    out.resize(tuple(x.shape[d] for d in order))
    return strided(x, out, [strides[d] for d in order])


@op("aten.t_copy.default")
def transpose_2d(x: LiveTensor, out: LiveTensor) -> Dispatch:
    return permute(x, tuple(reversed(range(x.rank))), out)  # type: ignore[no-any-return]


@op("aten.slice_copy.Tensor")
def slice_copy(
    x: LiveTensor, dim: int, start: int | None, end: int | None, step: int, out: LiveTensor
) -> Dispatch:
    d = dimension(dim, x.rank)
    check(step >= 1, f"step must be at least 1, not {step}")
    first, last, _ = slice(start, None if end is None or end >= END else end, step).indices(x.shape[d])
    strides = list(contiguous(x.shape))
    offset = first * strides[d]
    strides[d] *= step
    out.resize((*x.shape[:d], max(0, math.ceil((last - first) / step)), *x.shape[d + 1 :]))
    return strided(x, out, strides, offset)


@op("aten.select_copy.int")
def select(x: LiveTensor, dim: int, index: int, out: LiveTensor) -> Dispatch:
    d = dimension(dim, x.rank)
    size = x.shape[d]
    check(-size <= index < size, f"index {index} is out of range for dimension {d} of live size {size}")
    strides = contiguous(x.shape)
    out.resize(x.shape[:d] + x.shape[d + 1 :])
    return strided(x, out, strides[:d] + strides[d + 1 :], (index % size) * strides[d])


@op("aten.expand_copy.default")
def expand(x: LiveTensor, size: Shape, implicit: bool, out: LiveTensor) -> Dispatch:
    lead = len(size) - x.rank
    check(lead >= 0, f"{describe(x.shape)} cannot be expanded to the smaller rank of {describe(size)}")
    padded = (1,) * lead + x.shape
    shape = tuple(have if want == -1 else want for have, want in zip(padded, size, strict=True))
    for have, want in zip(padded, shape, strict=True):
        check(have in (1, want), f"{describe(x.shape)} cannot be expanded to {describe(size)}")
    out.resize(shape)
    return strided(x, out, broadcast_strides(x.shape, shape))


@op("aten.flip.default")
def flip(x: LiveTensor, dims: Sequence[int], out: LiveTensor) -> Dispatch:
    strides = list(contiguous(x.shape))
    offset = 0
    for d in {dimension(d, x.rank) for d in dims}:
        offset += strides[d] * (x.shape[d] - 1)
        strides[d] = -strides[d]
    out.resize(x.shape)
    return strided(x, out, strides, offset)


@op("aten.cat.default")
def cat(tensors: Sequence[LiveTensor], dim: int, out: LiveTensor) -> list[Dispatch]:
    # torch lets an empty rank-1 tensor stand beside tensors of any rank.
    parts = [x for x in tensors if x.max_shape != (0,)]
    check(bool(parts), "there is nothing to concatenate")
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
    dispatches, start = [], 0
    for x in parts:
        params = {
            "quads": quads(out.numel),
            "inner": numel(x.shape[d + 1 :]),
            "length": x.shape[d],
            "total": total,
            "start": start,
        }
        grid = threads(quads(out.numel) if x.numel else 0)
        dispatches.append(Dispatch("strided_write", {"x": x, "y": out}, params, grid))
        start += x.shape[d]
    return dispatches


@op("update_cache.default", mutates=["cache"], uniforms=["start_pos"])
def update_cache(value: LiveTensor, cache: LiveTensor, start_pos: LiveInt, out: Any) -> Dispatch:
    return cache_update(value, cache, start_pos)


def cache_update(value: LiveTensor, cache: LiveTensor, start_pos: LiveInt) -> Dispatch:
    """cache[:, start_pos : start_pos + S] = value, for [B, S, H, D] into [B, capacity, H, D]."""
    fits = (
        value.rank == cache.rank >= 2
        and value.shape[0] == cache.shape[0]
        and value.shape[2:] == cache.shape[2:]
    )
    check(
        fits, f"values of shape {describe(value.shape)} do not fit a cache of shape {describe(cache.shape)}"
    )
    length, capacity = value.shape[1], cache.shape[1]
    check(length <= capacity, f"{length} new positions do not fit a cache of {capacity}")
    start_pos.require(
        0,
        capacity - length,
        f"position {{value}} plus {length} new tokens does not fit the cache of {capacity} positions",
    )
    width = numel(value.shape[2:])
    words = value.shape[0] * length * width
    params = {"count": words, "row": length * width, "cache_row": capacity * width, "width": width}
    bindings = {"x": value, "cache": cache, "start_pos": start_pos}
    return Dispatch("cache_update", bindings, params, threads(words))
