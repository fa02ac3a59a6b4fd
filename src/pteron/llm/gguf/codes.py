"""A matrix in codes of few bits, as `pteron.linear_affine` and `pteron.embedding_affine` take it.

Rows are divided into groups, each with a scale. A weight is scale * (code - zero), or
scale * code + minimum, or scale * table[code]. `compiler.ops.affine` describes the layout.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pteron.llm.architectures.tensors import Bytes, Floats
from pteron.llm.gguf.scales import Levels, StoredScales, narrowed, pack_levels, unpack_scales

Words = NDArray[np.int32]

LINE = 16  # bytes that rows are filled up to: kernels load four words at once


@dataclass(frozen=True, slots=True)
class Codes:
    """Codes [N, K]; scales and, where there are, minima [N, groups].

    With factors [N, super-blocks, 1 or 2], scales and minima are levels that the factors multiply.
    """

    codes: Bytes
    scales: Floats | Levels
    bits: int
    zero: int = 0
    minima: Floats | Levels | None = None
    table: tuple[float, ...] | None = None
    factors: Floats | None = None


@dataclass(frozen=True, slots=True)
class Coded:
    """Codes packed into words [N, words], and stored scales."""

    words: Words
    scales: StoredScales
    depth: int
    bits: int
    group_size: int
    zero: int = 0
    table: tuple[float, ...] | None = None

    @property
    def rows(self) -> int:
        return len(self.words)

    @property
    def nbytes(self) -> int:
        return self.words.nbytes + self.scales.nbytes

    def dequantize(self) -> Floats:
        groups = self.depth // self.group_size
        codes = unpack(self.words, self.bits, self.depth).reshape(self.rows, groups, -1)
        scales = unpack_scales(self.scales, groups)
        if scales.shape[2] == 2:
            values = codes.astype(np.float32) * scales[..., :1] + scales[..., 1:]
        elif self.table is not None:
            values = np.array(self.table, np.float32)[codes] * scales
        else:
            values = (codes.astype(np.float32) - self.zero) * scales
        return np.asarray(values.reshape(self.rows, self.depth), np.float32)


def code(parts: Codes) -> Coded:
    """Pack the codes and the scales."""
    depth, groups = parts.codes.shape[1], parts.scales.shape[1]
    scales: StoredScales = parts.scales
    if parts.factors is None:
        scales = narrowed(scales if parts.minima is None else np.stack([scales, parts.minima], axis=-1))
    else:
        levels = [scales] if parts.minima is None else [scales, parts.minima]
        scales = pack_levels(np.stack(levels, axis=-1), parts.factors)
    words = pack(parts.codes, parts.bits)
    return Coded(words, scales, depth, parts.bits, depth // groups, parts.zero, parts.table)


def joined(parts: list[Coded]) -> Coded:
    """Matrices of one form, one below the other."""
    scales = [part.scales for part in parts]
    if len({each.dtype for each in scales}) > 1:
        scales = [each.astype(np.float32) for each in scales]
    words = np.concatenate([part.words for part in parts])
    return replace(parts[0], words=words, scales=np.concatenate(scales))


def pack(codes: Bytes, bits: int) -> Words:
    rows = len(codes)
    packed = np.concatenate([_packed(plane, width) for plane, width in _planes(codes, bits)], axis=1)
    padded = np.zeros((rows, packed.shape[1] + -packed.shape[1] % LINE), np.uint8)
    padded[:, : packed.shape[1]] = packed
    return padded.view("<i4")


def unpack(words: Words, bits: int, depth: int) -> Bytes:
    packed = words.view(np.uint8)
    codes = np.zeros((len(words), depth), np.uint8)
    begin = below = 0
    for width in _widths(bits):
        nbytes = 4 * -(-depth * width // 32)
        part = packed[:, begin : begin + nbytes, None] >> np.arange(0, 8, width, dtype=np.uint8)
        plane = (part & np.uint8((1 << width) - 1)).reshape(len(words), -1)[:, :depth]
        codes |= plane << np.uint8(below)
        begin, below = begin + nbytes, below + width
    return codes


def _widths(bits: int) -> Iterator[int]:
    return (width for width in (8, 4, 2, 1) if bits & width)


def _planes(codes: Bytes, bits: int) -> Iterator[tuple[Bytes, int]]:
    """The bits of the codes that each plane has, and how many they are."""
    below = 0
    for width in _widths(bits):
        yield codes >> np.uint8(below) & np.uint8((1 << width) - 1), width
        below += width


def _packed(plane: Bytes, width: int) -> Bytes:
    """Values of a few bits as the bytes of whole words, the first value lowest."""
    rows, depth = plane.shape
    per_word = 32 // width
    if depth % per_word:
        plane = np.pad(plane, ((0, 0), (0, -depth % per_word)))
    parts = plane.reshape(rows, -1, 8 // width)
    result = parts[..., 0].copy()
    for number in range(1, 8 // width):
        result |= parts[..., number] << np.uint8(width * number)
    return result
