"""The scales of groups, and their minima where there are: as floats, or as levels with factors.

Super-block formats have a small integer for each group, its level, and float factors for each super-block:
a scale is factor * level. Stored so, they take half of what float16 would, and are exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pteron.llm.architectures.tensors import Floats

Levels = NDArray[np.int8]
StoredScales = NDArray[Any]  # float32 or float16 [N, groups] or [N, groups, 2]; or int32, see `pack_levels`


def narrowed(scales: Floats) -> StoredScales:
    """Scales as float16, unless that rounds some by more than 1/2048 of themselves or of their mean."""
    with np.errstate(over="ignore"):
        half = scales.astype(np.float16)
    size = np.abs(scales)
    allowed = np.maximum(size, size.mean(axis=(0, 1))) / 2048
    return half if (np.abs(half - scales) <= allowed).all() else scales


def pack_levels(levels: Levels, factors: Floats) -> StoredScales:
    """Words [N, super-blocks, words]: the factors as float32, then the levels as bytes.

    levels: [N, groups, 1], or [N, groups, 2] where the level of the minimum follows that of the scale.
    factors: [N, super-blocks, 1 or 2], of the scales and of the minima.
    """
    rows, blocks, _ = factors.shape
    level_bytes = np.ascontiguousarray(levels).reshape(rows, blocks, -1)
    words = np.concatenate([factors.astype("<f4").view(np.int8), level_bytes], axis=-1)
    return np.ascontiguousarray(words).view("<i4")


def unpack_scales(scales: StoredScales, groups: int) -> Floats:
    """Stored scales as float32 [N, groups, 1], or with minima [N, groups, 2]."""
    if scales.dtype != np.int32:
        return np.asarray(scales.reshape(*scales.shape[:2], -1), np.float32)
    rows, blocks, words = scales.shape
    per_block = groups // blocks
    kinds = words // (1 + per_block // 4)  # 1, or 2 where there are minima
    factors = scales[..., :kinds].view(np.float32).reshape(rows, blocks, 1, kinds)
    levels = np.ascontiguousarray(scales[..., kinds:]).view(np.int8).reshape(rows, blocks, per_block, kinds)
    return np.asarray((factors * levels.astype(np.float32)).reshape(rows, groups, kinds), np.float32)
