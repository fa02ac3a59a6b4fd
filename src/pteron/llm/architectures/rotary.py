"""Rotary position embeddings: frequencies, tables, and the order of a head's elements."""

from __future__ import annotations

from math import ceil, floor, log, pi

import numpy as np
from numpy.typing import NDArray

from pteron.llm.architectures.config import Rotary
from pteron.llm.architectures.tensors import Floats


def frequencies(base: float, size: int) -> NDArray[np.float64]:
    """Of each pair among `size` elements, before any scaling."""
    half: NDArray[np.float64] = base ** -(np.arange(0, size, 2, dtype=np.float64) / size)
    return half


def rotary(values: NDArray[np.float64], gain: float = 1.0) -> Rotary:
    return Rotary(tuple(values.tolist()), gain)


def rotation_tables(rotary: Rotary, positions: int) -> tuple[Floats, Floats]:
    """cos and sin [positions, rotated elements] for rotation of halves."""
    angles = np.outer(np.arange(positions), np.tile(rotary.frequencies, 2))
    return (rotary.gain * np.cos(angles)).astype(np.float32), (rotary.gain * np.sin(angles)).astype(
        np.float32
    )


def halves_from_pairs(heads: int, size: int, turned: int) -> NDArray[np.int64]:
    """Rows that are stored for rotation of pairs (2i, 2i+1), in the order for halves (i, i + turned/2)."""
    rows = np.arange(heads * size).reshape(heads, size)
    pairs = rows[:, :turned].reshape(heads, turned // 2, 2).swapaxes(1, 2).reshape(heads, turned)
    return np.concatenate([pairs, rows[:, turned:]], axis=1).reshape(-1)


def yarn(
    base: float, size: int, factor: float, first_context: int, fast: float = 32.0, slow: float = 1.0
) -> tuple[NDArray[np.float64], float]:
    """Frequencies for a context that is `factor` times the first one, and what cos and sin are multiplied by.

    A pair that turns at least `fast` times in the first context stays as it is. A pair that turns at most
    `slow` times is divided by the factor. Those between are blended.
    """

    def pair_that_turns(times: float) -> float:
        return size * log(first_context / (times * 2 * pi)) / (2 * log(base))

    first = max(floor(pair_that_turns(fast)), 0)
    last = min(ceil(pair_that_turns(slow)), size - 1)
    slowed = np.clip((np.arange(size // 2) - first) / max(last - first, 0.001), 0, 1)
    values = frequencies(base, size) * (1 - slowed + slowed / factor)
    return values, 0.1 * log(factor) + 1 if factor > 1 else 1.0
