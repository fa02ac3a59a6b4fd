"""Affine quantisation in groups: each value is scale * code + minimum, one pair for each group.

A few ranges are tried, from the whole range of a group to a narrower one, which clips the outermost values
and rounds all others less. For each, the scale and the minimum follow by least squares. The best is kept.
"""

from __future__ import annotations

import numpy as np

from pteron.llm.architectures.tensors import Bytes, Floats
from pteron.llm.gguf.codes import Codes

# The shares of a group's range that are tried. With many codes, the whole range is best.
SHARES = {4: (1.0, 0.95, 0.9, 0.85, 0.8, 0.75), 8: (1.0,)}


def round_affine(values: Floats, bits: int, group_size: int) -> Codes:
    """A matrix [N, K] in codes of `bits` bits."""
    rows, width = values.shape
    # One group per column: sums then run over whole vectors.
    x = np.ascontiguousarray(values.reshape(-1, group_size).T)
    low, high = x.min(axis=0), x.max(axis=0)
    mean = x.mean(axis=0)
    best_gain = np.full(x.shape[1], -1, np.float32)
    best_scale, best_minimum = np.zeros_like(mean), mean.copy()
    best = np.zeros(x.shape, np.uint8)
    for share in SHARES[bits]:
        codes = _codes(x, low, high, np.float32(share), (1 << bits) - 1)
        centred = codes - codes.mean(axis=0)
        # Of all scales, sum(xq) / sum(qq) has the least squared error, and gains this much over the mean.
        along, norm = (x * centred).sum(axis=0), np.square(centred).sum(axis=0)
        scale = along / np.where(norm > 0, norm, np.float32(1))
        gain = scale * along
        better = gain > best_gain
        np.copyto(best_gain, gain, where=better)
        np.copyto(best_scale, scale, where=better)
        np.copyto(best_minimum, mean - scale * codes.mean(axis=0), where=better)
        np.copyto(best, codes.astype(np.uint8), where=better)
    shape = (rows, width // group_size)
    made: Bytes = np.ascontiguousarray(best.T).reshape(rows, width)
    return Codes(made, best_scale.reshape(shape), bits, minima=best_minimum.reshape(shape))


def _codes(x: Floats, low: Floats, high: Floats, share: np.float32, largest: int) -> Floats:
    """The nearest codes, where the lowest and the highest stand for the ends of a share of the range."""
    half = (high - low) * share / 2
    step = np.maximum(2 * half / largest, np.float32(1e-30))
    codes: Floats = np.rint((x - ((low + high) / 2 - half)) / step)
    return np.clip(codes, 0, largest)
