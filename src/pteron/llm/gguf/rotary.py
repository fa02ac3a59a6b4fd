"""Rotary position embeddings: the tables, and the order of a head's elements."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pteron.llm.gguf.config import Config
from pteron.llm.gguf.quantize import Floats


def rotation_tables(config: Config, positions: int, slower: Floats | None = None) -> tuple[Floats, Floats]:
    """cos and sin [positions, head_size] for rotation of halves; `slower` divides each frequency."""
    half = np.arange(0, config.head_size, 2, dtype=np.float64) / config.head_size
    frequencies = config.rotary_base**-half / config.rotary_slowdown
    if slower is not None:
        frequencies = frequencies / slower
    angles = np.outer(np.arange(positions), np.concatenate([frequencies, frequencies]))
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def halves_from_pairs(heads: int, size: int) -> NDArray[np.int64]:
    """Rows that are stored for rotation of pairs (2i, 2i+1), in the order for halves (i, i + size/2)."""
    rows = np.arange(heads * size).reshape(heads, size // 2, 2)
    return rows.swapaxes(1, 2).reshape(-1)
