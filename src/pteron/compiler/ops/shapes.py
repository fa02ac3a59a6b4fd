"""Shape arithmetic that operators share: dimensions, broadcasting, strides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pteron.compiler.ir.rule import LiveTensor, Number, OpError, Shape, check, describe, numel

__all__ = [
    "MAX_RANK",
    "broadcast",
    "broadcast_strides",
    "broadcast_walks",
    "contiguous",
    "dimension",
    "merge",
    "numel",
    "walks",
]

# The size of `array<vec4<u32>, 2>` in a kernel's Params. Dimensions are merged before they are counted.
MAX_RANK = 8


def dimension(dim: int, rank: int) -> int:
    """A possibly negative dimension as an index into the shape."""
    check(-max(rank, 1) <= dim < max(rank, 1), f"dimension {dim} is out of range for rank {rank}")
    return dim % max(rank, 1)


def contiguous(shape: Shape) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def broadcast(*shapes: Shape) -> Shape:
    """The common shape of several operands, by numpy's rule."""
    rank = max(map(len, shapes))
    out = []
    for i in range(1, rank + 1):
        common = 1
        for size in (shape[-i] for shape in shapes if len(shape) >= i):
            if size != 1 and common not in (1, size):
                raise OpError(f"shapes {' and '.join(map(describe, shapes))} do not broadcast together")
            common = common if size == 1 else size
        out.append(common)
    return tuple(reversed(out))


def broadcast_strides(shape: Shape, out: Shape) -> tuple[int, ...]:
    """The strides of a tensor that is broadcast from `shape` to `out`: 0 for a repeated dimension."""
    padded = (1,) * (len(out) - len(shape)) + shape
    return tuple(0 if size == 1 else stride for size, stride in zip(padded, contiguous(padded), strict=True))


def broadcast_walks(shape: Shape, operands: Mapping[str, LiveTensor]) -> dict[str, Number]:
    """Parameters of a kernel: from an element of the output to those of operands that are broadcast to it."""
    return walks(shape, **{name: broadcast_strides(x.shape, shape) for name, x in operands.items()})


def walks(sizes: Shape, **strides: Sequence[int]) -> dict[str, Number]:
    """Parameters of a kernel: merged dimensions, and the strides of each named operand along them."""
    merged, found = merge(sizes, *strides.values())
    named = {f"{name}_strides": walk for name, walk in zip(strides, found, strict=True)}
    return {"rank": len(merged), "sizes": merged, **named}


def merge(sizes: Shape, *strides: Sequence[int]) -> tuple[Shape, list[tuple[int, ...]]]:
    """Merge neighbouring dimensions if the strides of all operands allow it, so that kernels divide less."""
    kept: list[int] = []
    walks: list[list[int]] = [[] for _ in strides]
    for d, size in enumerate(sizes):
        if size == 1:
            continue
        joins = bool(kept) and all(
            walk[-1] == stride[d] * size for walk, stride in zip(walks, strides, strict=True)
        )
        if joins:
            kept[-1] *= size
        else:
            kept.append(size)
        for walk, stride in zip(walks, strides, strict=True):
            if joins:
                walk[-1] = stride[d]
            else:
                walk.append(stride[d])
    check(len(kept) <= MAX_RANK, f"more than {MAX_RANK} dimensions that cannot be merged: {describe(sizes)}")
    return tuple(kept), [tuple(walk) for walk in walks]
