"""Tensors in GGUF's formats: random blocks with scales of a sensible size."""

from __future__ import annotations

from typing import Any

import gguf
import numpy as np

Bytes = np.ndarray[Any, Any]
Kind = gguf.GGMLQuantizationType

# Where the float16 of a block are: the factors of all that is in it.
FACTORS = {
    "Q4_0": [0],
    "Q4_1": [0, 2],
    "Q5_0": [0],
    "Q5_1": [0, 2],
    "Q8_0": [0],
    "Q2_K": [80, 82],
    "Q3_K": [108],
    "Q4_K": [0, 2],
    "Q5_K": [0, 2],
    "Q6_K": [208],
    "IQ4_NL": [0],
    "IQ4_XS": [0],
}


def random_blocks(kind: str, rows: int, width: int, size: float, seed: int = 0) -> Bytes:
    """Rows of blocks whose weights are about as large as `size`: [rows, bytes]."""
    random = np.random.default_rng(seed)
    per_block, nbytes = gguf.GGML_QUANT_SIZES[Kind[kind]]
    blocks = random.integers(0, 256, (rows * width // per_block, nbytes), dtype=np.uint8)
    if kind == "MXFP4":
        blocks[:, 0] = 127 + round(np.log2(size / 4)) + random.integers(-1, 2, len(blocks))
        return blocks.reshape(rows, -1)
    factors = random.uniform(0.5, 1, (len(blocks), 1))
    _put(blocks, kind, factors)
    typical = np.abs(gguf.dequantize(blocks, Kind[kind])).mean()
    _put(blocks, kind, factors * size / typical)
    return blocks.reshape(rows, -1)


def _put(blocks: Bytes, kind: str, factors: Bytes) -> None:
    for number, at in enumerate(FACTORS[kind]):
        minimum = number == 1 and not kind.endswith("K")  # the factor of a K block's minima is positive
        halves = (-4 * factors if minimum else factors).astype("<f2")
        blocks[:, at : at + 2] = halves.view(np.uint8)
