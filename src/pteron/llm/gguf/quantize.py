"""Symmetric 4-bit quantisation in groups: each value is (nibble - 8) * scale, one scale per group.

The scale is searched, not taken from the largest value: for each of a few candidates the values are
rounded, the best scale for those roundings follows by least squares, and the candidate with the smallest
error is kept. Errors are weighed by how much each column matters. A scale may be negative, which puts the
longer side of the 16 levels (-8) where the group's largest value is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pteron.llm.architectures.tensors import Floats

Bytes = NDArray[np.uint8]

# The level that a group's largest value is put on: -8 of a scale with the value's opposite sign, or 7 of one
# with its own sign, and what lies around them, since clipping the largest value may serve the others.
LEVELS = (
    -12,
    -11,
    -10,
    -9.4,
    -9,
    -8.6,
    -8.3,
    -8,
    -7.7,
    -7.4,
    -7,
    -6.6,
    6.4,
    6.8,
    7.2,
    7.6,
    8,
    8.6,
    9.4,
    10.4,
)

# How often the best candidate is rounded again, with the scale that was best for its last rounding.
REFINEMENTS = 2

# Values searched at once: a few arrays of this size stay in a core's cache.
BLOCK = 1 << 17


@dataclass(frozen=True, slots=True)
class Quantized:
    """A matrix [N, K] as bytes [N, K/2], even k in the low nibble, and scales [N, K/group]."""

    packed: Bytes
    scales: Floats

    @property
    def group_size(self) -> int:
        return 2 * int(self.packed.shape[1]) // int(self.scales.shape[1])

    def dequantize(self, rows: slice = slice(None)) -> Floats:
        packed, scales = self.packed[rows], self.scales[rows]
        nibbles = np.stack([packed & 15, packed >> 4], axis=-1).reshape(*scales.shape, -1)
        return ((nibbles.astype(np.float32) - 8) * scales[..., None]).reshape(len(packed), -1)


def quantize(
    rows: int,
    width: int,
    group_size: int,
    read: Callable[[slice], Floats],
    importance: Floats | None = None,
) -> Quantized:
    """Quantise a matrix of which `read` gives any rows, a block at a time on every core.

    `importance` [width] weighs the errors of each column.
    """
    per_row = width // group_size
    weights = np.ones(width, np.float32) if importance is None else importance
    result = Quantized(np.empty((rows, width // 2), np.uint8), np.empty((rows, per_row), np.float32))

    def fill(block: slice) -> None:
        values = read(block)
        nibbles, scales = search(
            values.reshape(-1, group_size), np.tile(weights.reshape(per_row, group_size), (len(values), 1))
        )
        pairs = nibbles.reshape(-1, width // 2, 2)
        result.packed[block] = pairs[..., 0] | pairs[..., 1] << 4
        result.scales[block] = scales.reshape(-1, per_row)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(fill, _blocks(rows, max(1, BLOCK // width))))
    return result


def search(groups: Floats, weights: Floats) -> tuple[Bytes, Floats]:
    """The nibbles [n, group] and scales [n] of each row of `groups`, with errors weighed by `weights`."""
    # One group per column: sums then run over whole vectors.
    x, w = np.ascontiguousarray(groups.T), np.ascontiguousarray(weights.T)
    count = x.shape[1]
    largest = x[np.abs(x).argmax(axis=0), np.arange(count)]
    steps = _inverse(largest)
    weighted = x * w
    best_gain = np.full(count, -1, np.float32)
    best_scale = np.zeros(count, np.float32)
    best = np.zeros(x.shape, np.float32)
    for level in (*LEVELS, *[None] * REFINEMENTS):
        factor = _inverse(best_scale) if level is None else np.float32(level) * steps
        q = np.rint(x * factor)
        np.clip(q, -8, 7, out=q)
        # Of all scales, sum(wxq) / sum(wqq) has the least squared error, and gains this much over zero.
        along = (weighted * q).sum(axis=0)
        norm = (w * q * q).sum(axis=0)
        scale = along / np.where(norm > 0, norm, np.float32(1))
        gain = scale * along
        better = gain > best_gain
        np.copyto(best_gain, gain, where=better)
        np.copyto(best_scale, scale, where=better)
        np.copyto(best, q, where=better)
    return (best.T + 8).astype(np.uint8), best_scale


def _inverse(x: Floats) -> Floats:
    """1 / x; of what is so small that this would not be finite, 1."""
    return np.asarray(1 / np.where(np.abs(x) < np.float32(1e-30), np.float32(1), x), np.float32)


def _blocks(rows: int, step: int) -> Iterator[slice]:
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))
