"""A matrix in codes of few bits, as `pteron.linear_affine` and `pteron.embedding_affine` take it.

Rows are divided into groups, each with a scale. A weight is scale * (code - zero), or
scale * code + minimum, or scale * table[code]. How codes lie in words is said in `pteron.ops.affine`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pteron.llm.architectures.tensors import Floats
from pteron.llm.gguf.quantize import Bytes

Words = NDArray[np.int32]
Scales = NDArray[Any]  # float32 or float16

LINE = 16  # bytes that rows are filled up to: kernels load four words at once


@dataclass(frozen=True, slots=True)
class Codes:
    """Codes [N, K], scales [N, groups] and, where there are, minima."""

    codes: Bytes
    scales: Floats
    bits: int
    zero: int = 0
    minima: Floats | None = None
    table: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True)
class Coded:
    """Codes packed into words [N, words]; scales [N, groups], or with minima [N, groups, 2]."""

    words: Words
    scales: Scales
    depth: int
    bits: int
    zero: int = 0
    table: tuple[float, ...] | None = None

    @property
    def rows(self) -> int:
        return len(self.words)

    @property
    def group_size(self) -> int:
        return self.depth // int(self.scales.shape[1])

    @property
    def nbytes(self) -> int:
        return self.words.nbytes + self.scales.nbytes

    def dequantize(self) -> Floats:
        codes = unpack(self.words, self.bits, self.depth).reshape(*self.scales.shape[:2], -1)
        scales = self.scales.astype(np.float32)
        if self.scales.ndim == 3:
            values = codes.astype(np.float32) * scales[..., :1] + scales[..., 1:]
        elif self.table is not None:
            values = np.array(self.table, np.float32)[codes] * scales[..., None]
        else:
            values = (codes.astype(np.float32) - self.zero) * scales[..., None]
        return np.asarray(values.reshape(self.rows, self.depth), np.float32)


def code(parts: Codes) -> Coded:
    """Pack the codes, and store the scales in the type that `narrowed` gives them."""
    scales = parts.scales if parts.minima is None else np.stack([parts.scales, parts.minima], axis=-1)
    depth = parts.codes.shape[1]
    words = pack(parts.codes, parts.bits)
    return Coded(words, narrowed(scales), depth, parts.bits, parts.zero, parts.table)


def joined(parts: list[Coded]) -> Coded:
    """Matrices of one form, one below the other."""
    scales = [part.scales for part in parts]
    if len({each.dtype for each in scales}) > 1:
        scales = [each.astype(np.float32) for each in scales]
    words = np.concatenate([part.words for part in parts])
    return replace(parts[0], words=words, scales=np.concatenate(scales))


def narrowed(scales: Floats) -> Scales:
    """Scales as float16, unless that rounds some by more than 1/2048 of themselves or of their mean."""
    with np.errstate(over="ignore"):
        half = scales.astype(np.float16)
    size = np.abs(scales)
    allowed = np.maximum(size, size.mean(axis=(0, 1))) / 2048
    return half if (np.abs(half - scales) <= allowed).all() else scales


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
