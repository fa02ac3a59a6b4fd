"""GGUF's block formats as codes, scales and minima: the same numbers, otherwise arranged.

A block is a few bytes for 32 weights, or for 256. Blocks of 256 ("K", "XS") are super-blocks: the scales and
minima of their groups are small integers, their levels, and one or two float16 factors multiply these.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from pteron.llm.architectures.tensors import Bytes, Floats
from pteron.llm.gguf.codes import Codes
from pteron.llm.gguf.scales import Levels

# Each takes blocks [n, bytes], and gives codes [n, weights of a block], scales and minima [n, groups of a
# block], and factors [n, 1 or 2].
Decoder = Callable[[Bytes], Codes]

# What 4-bit codes of these formats stand for: uneven levels, and floats of one mantissa bit, times two.
IQ4_NL = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
MXFP4 = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)


def decode_blocks(kind: str, rows: Bytes) -> Codes:
    """Rows of whole blocks [N, bytes] of a format of FORMATS."""
    nbytes, decoder = FORMATS[kind]
    parts = decoder(rows.reshape(-1, nbytes))
    flat = (len(rows), -1)
    return replace(
        parts,
        codes=parts.codes.reshape(flat),
        scales=parts.scales.reshape(flat),
        minima=None if parts.minima is None else parts.minima.reshape(flat),
        factors=None if parts.factors is None else parts.factors.reshape(*flat, parts.factors.shape[1]),
    )


# -- blocks of 32 ------------------------------------------------------------------------------------


def _q4_0(blocks: Bytes) -> Codes:
    return Codes(_nibbles(blocks[:, 2:18], 16), _halves(blocks[:, :2]), bits=4, zero=8)


def _q4_1(blocks: Bytes) -> Codes:
    both = _halves(blocks[:, :4])
    return Codes(_nibbles(blocks[:, 4:20], 16), both[:, :1], bits=4, minima=both[:, 1:])


def _q5_0(blocks: Bytes) -> Codes:
    codes = _nibbles(blocks[:, 6:22], 16) | _fifth_bits(blocks[:, 2:6])
    return Codes(codes, _halves(blocks[:, :2]), bits=5, zero=16)


def _q5_1(blocks: Bytes) -> Codes:
    both = _halves(blocks[:, :4])
    codes = _nibbles(blocks[:, 8:24], 16) | _fifth_bits(blocks[:, 4:8])
    return Codes(codes, both[:, :1], bits=5, minima=both[:, 1:])


def _q8_0(blocks: Bytes) -> Codes:
    return Codes(blocks[:, 2:34] ^ np.uint8(128), _halves(blocks[:, :2]), bits=8, zero=128)


def _iq4_nl(blocks: Bytes) -> Codes:
    return Codes(_nibbles(blocks[:, 2:18], 16), _halves(blocks[:, :2]), bits=4, table=IQ4_NL)


def _mxfp4(blocks: Bytes) -> Codes:
    scales = np.ldexp(np.float32(1), blocks[:, :1].astype(np.int32) - 128)
    return Codes(_nibbles(blocks[:, 1:17], 16), scales, bits=4, table=MXFP4)


# -- blocks of 256 -----------------------------------------------------------------------------------


def _q2_k(blocks: Bytes) -> Codes:
    """Groups of 16."""
    levels = blocks[:, :16]
    return Codes(
        _pairs(blocks[:, 16:80]),
        (levels & 15).view(np.int8),
        bits=2,
        minima=(levels >> 4).view(np.int8),
        factors=_scale_and_minimum(blocks[:, 80:84]),
    )


def _q3_k(blocks: Bytes) -> Codes:
    """Groups of 16."""
    top, low, packed = blocks[:, :32], blocks[:, 32:96], blocks[:, 96:108]
    codes = _pairs(low) | (_bits(top, range(8)) << np.uint8(2))
    levels = _nibbles(packed[:, :8], 8) | (_shifted(packed[:, 8:], (0, 2, 4, 6), 3) << np.uint8(4))
    return Codes(codes, _signed(levels), bits=3, zero=4, factors=_halves(blocks[:, 108:110]))


def _q4_k(blocks: Bytes) -> Codes:
    """Groups of 32."""
    scales, minima = _levels_of_eight(blocks[:, 4:16])
    codes, factors = _nibbles(blocks[:, 16:144], 32), _scale_and_minimum(blocks[:, :4])
    return Codes(codes, scales, bits=4, minima=minima, factors=factors)


def _q5_k(blocks: Bytes) -> Codes:
    """Groups of 32."""
    scales, minima = _levels_of_eight(blocks[:, 4:16])
    codes = _nibbles(blocks[:, 48:176], 32) | (_bits(blocks[:, 16:48], range(8)) << np.uint8(4))
    return Codes(codes, scales, bits=5, minima=minima, factors=_scale_and_minimum(blocks[:, :4]))


def _q6_k(blocks: Bytes) -> Codes:
    """Groups of 16."""
    low, high, levels = blocks[:, :128], blocks[:, 128:192], blocks[:, 192:208].view(np.int8)
    codes = _nibbles(low, 64) | (_pairs(high) << np.uint8(4))
    return Codes(codes, levels, bits=6, zero=32, factors=_halves(blocks[:, 208:210]))


def _iq4_xs(blocks: Bytes) -> Codes:
    """Groups of 32."""
    high, low, codes = blocks[:, 2:4], blocks[:, 4:8], _nibbles(blocks[:, 8:136], 16)
    # In both, the levels of neighbouring groups are neighbours.
    upper = _interleaved(high, (0, 2, 4, 6), 3) << np.uint8(4)
    levels = _interleaved(low, (0, 4), 15) | upper
    return Codes(codes, _signed(levels), bits=4, table=IQ4_NL, factors=_halves(blocks[:, :2]))


def _levels_of_eight(packed: Bytes) -> tuple[Levels, Levels]:
    """Scales and minima of eight groups: six bits each, the upper two of the last four in the first bytes."""
    first, second, low = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.concatenate([first & 63, low & 15 | first >> 6 << 4], axis=1)
    minima = np.concatenate([second & 63, low >> 4 | second >> 6 << 4], axis=1)
    return scales.view(np.int8), minima.view(np.int8)


def _scale_and_minimum(packed: Bytes) -> Floats:
    """The factors of the scales and of the minima. The format subtracts minima, the operator adds them."""
    return _halves(packed) * np.array([1, -1], np.float32)


def _signed(levels: Bytes) -> Levels:
    """Levels of six bits that count from -32."""
    return levels.view(np.int8) - np.int8(32)


# -- bytes taken apart -------------------------------------------------------------------------------


def _halves(packed: Bytes) -> Floats:
    return np.ascontiguousarray(packed).view("<f2").astype(np.float32)


def _shifted(packed: Bytes, shifts: tuple[int, ...], mask: int) -> Bytes:
    """All bytes shifted by the first, then all by the second, and so on."""
    parts = packed[:, None, :] >> np.array(shifts, np.uint8)[:, None] & np.uint8(mask)
    return parts.reshape(len(packed), -1)


def _interleaved(packed: Bytes, shifts: tuple[int, ...], mask: int) -> Bytes:
    """Each byte shifted by all of the shifts, one byte after the other."""
    parts = packed[:, :, None] >> np.array(shifts, np.uint8) & np.uint8(mask)
    return parts.reshape(len(packed), -1)


def _nibbles(packed: Bytes, run: int) -> Bytes:
    """The low nibbles of every `run` bytes, then their high ones."""
    return _shifted(packed.reshape(-1, run), (0, 4), 15).reshape(len(packed), -1)


def _pairs(packed: Bytes) -> Bytes:
    """The lowest pairs of every 32 bytes, then the next ones."""
    return _shifted(packed.reshape(-1, 32), (0, 2, 4, 6), 3).reshape(len(packed), -1)


def _bits(packed: Bytes, shifts: range) -> Bytes:
    return _shifted(packed, tuple(shifts), 1)


def _fifth_bits(packed: Bytes) -> Bytes:
    return np.unpackbits(packed, axis=1, bitorder="little") << np.uint8(4)


# By GGUF's name: the bytes of a block, and what is made of them.
FORMATS: dict[str, tuple[int, Decoder]] = {
    "Q4_0": (18, _q4_0),
    "Q4_1": (20, _q4_1),
    "Q5_0": (22, _q5_0),
    "Q5_1": (24, _q5_1),
    "Q8_0": (34, _q8_0),
    "Q2_K": (84, _q2_k),
    "Q3_K": (110, _q3_k),
    "Q4_K": (144, _q4_k),
    "Q5_K": (176, _q5_k),
    "Q6_K": (210, _q6_k),
    "IQ4_NL": (18, _iq4_nl),
    "IQ4_XS": (136, _iq4_xs),
    "MXFP4": (17, _mxfp4),
}
