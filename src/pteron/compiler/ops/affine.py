"""Weights that are stored as codes of 2 to 8 bits, and the embedding that reads them.

A row of weights is divided into groups, and each group has a scale. A weight is scale * (code - zero),
scale * code + minimum if the groups have minima, or scale * table[code] if there is a table.

A code of 8 bits is one byte. A shorter code is split into planes of 4 bits, 2 bits and 1 bit, the low bits
first. For example, a code of 6 bits has a plane of 4 bits and a plane of 2 bits. Each plane of a row is
packed into whole words. The first code has the lowest bits of a word. Codes of one plane may have the layout
INTERLEAVED: [rows / 4, parts, 4, words of a part]. A part is 16 codes.

Scales are floats [rows, groups], or [rows, groups, 2] with (scale, minimum). Super-blocks of several groups
have int32 words [rows, super-blocks, words] instead: one float32 factor, or two with minima, and then the
levels of the groups. A level is a signed byte, or two with minima. A scale is factor * level.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property

from pteron.compiler.ir.integer_rules import indexes
from pteron.compiler.ir.rule import (
    Bound,
    Define,
    Dispatch,
    DType,
    LiveTensor,
    Number,
    check,
    describe,
    looked_up,
    looks_up,
    op,
    quads,
    threads,
)

PLANES = (8, 4, 2, 1)  # bits
INTERLEAVED = "interleaved"


def planes(bits: int) -> tuple[int, ...]:
    """The widths in bits of the planes of a code, the plane with the lowest bits first."""
    return tuple(width for width in PLANES if bits & width)


def row_words(bits: int, depth: int) -> int:
    """The number of words that a row of codes takes."""
    return sum(-(-depth * width // 32) for width in planes(bits))


def is_interleaved(codes: LiveTensor) -> bool:
    return codes.tensor.layout == INTERLEAVED


def check_interleaved(codes: LiveTensor, depth: int, group: int, per_part: int) -> None:
    """`per_part`: the elements of a part."""
    check(
        codes.shape[1:] == (depth // 16, 4, per_part) and group % 32 == 0,
        f"interleaved weights must be [rows / 4, {depth // 16}, 4, {per_part}] with groups of whole pairs of "
        f"parts, not {describe(codes.shape)} with groups of {group}",
    )


@dataclass(frozen=True, slots=True)
class GroupScales:
    """The scales of groups, as a kernel reads them."""

    stored: LiveTensor
    steps: tuple[int, int]  # the stride from row to row, and from group (or super-block) to group
    has_minima: bool = False
    per_block: int = 1  # groups of a super-block
    zeros: LiveTensor | None = None  # zero points, laid out as the scales; None: one number for all groups

    @classmethod
    def of_rows(cls, scales: LiveTensor, rows: int, groups: int) -> GroupScales:
        """Floats [rows, groups] or [rows, groups, 2], or int32 words [rows, super-blocks, words]."""
        shape = scales.shape
        if scales.dtype is DType.int32:
            return cls._of_super_blocks(scales, rows, groups)
        check(
            scales.dtype in (DType.float16, DType.float32)
            and (scales.rank == 2 or (scales.rank == 3 and shape[2] == 2))
            and shape[0] >= rows
            and shape[1] >= groups,
            f"scales must be floats [{rows}, {groups}] or, with minima, [{rows}, {groups}, 2], "
            f"not {scales.dtype} {describe(shape)}",
        )
        return cls(scales, (shape[1], 1), scales.rank == 3)

    @classmethod
    def _of_super_blocks(cls, scales: LiveTensor, rows: int, groups: int) -> GroupScales:
        shape = scales.shape
        check(
            scales.rank == 3 and shape[0] >= rows and shape[1] > 0 and groups % shape[1] == 0,
            f"scales of super-blocks must be int32 [{rows}, a divisor of {groups}, words], "
            f"not {describe(shape)}",
        )
        per_block = groups // shape[1]
        words = 1 + per_block // 4
        check(
            per_block % 4 == 0 and shape[2] in (words, 2 * words),
            f"a super-block of {per_block} groups must have a multiple of 4 groups, and {words} words or "
            f"with minima {2 * words}, not {shape[2]}",
        )
        return cls(scales, (shape[1] * shape[2], shape[2]), shape[2] > words, per_block)

    @property
    def defines(self) -> dict[str, Define]:
        return {
            "SCALES": self.stored.dtype.label,
            "MINIMA": self.has_minima,
            "ZERO_POINTS": self.zeros is not None,
            "BLOCK_GROUPS": self.per_block,
        }


@dataclass(frozen=True)
class AffineWeights:
    """Coded weights [rows, depth], as a kernel reads them."""

    codes: LiveTensor  # words or bytes
    scales: GroupScales
    depth: int
    bits: int
    group: int
    row_bytes: int
    zero: int = 0
    table: LiveTensor | None = None
    signed: bool = False  # only codes of 8 bits may be

    @classmethod
    def of_words(
        cls,
        codes: LiveTensor,
        scales: LiveTensor,
        depth: int,
        bits: int,
        group: int,
        zero: int,
        table: LiveTensor | None,
    ) -> AffineWeights:
        """Codes are [rows, words]. For scales see `GroupScales.of_rows`."""
        check(2 <= bits <= 8, f"bits must be from 2 to 8, not {bits}")
        check(group > 0, f"group_size must be positive, not {group}")
        words, groups = row_words(bits, depth), -(-depth // group)
        interleaved = is_interleaved(codes)
        if interleaved:
            check_interleaved(codes, depth, group, bits // 2)
            check(table is None, "interleaved weights have no table")
        check(
            codes.dtype is DType.int32 and (interleaved or (codes.rank == 2 and codes.shape[1] >= words)),
            f"weights must be int32 [rows, {words} or more], not {codes.dtype} {describe(codes.shape)}",
        )
        check(
            table is None or (table.dtype is DType.float32 and table.numel >= 1 << bits),
            f"the table must have {1 << bits} float32 elements for codes of {bits} bits",
        )
        rows, row_bytes = (
            (4 * codes.shape[0], 4 * words) if interleaved else (codes.shape[0], 4 * codes.shape[1])
        )
        form = GroupScales.of_rows(scales, rows, groups)
        return cls(codes, form, depth, bits, group, row_bytes, zero, table)

    @property
    def is_interleaved(self) -> bool:
        return is_interleaved(self.codes)

    @property
    def rows(self) -> int:
        return self.codes.shape[0] * (4 if self.is_interleaved else 1)

    @cached_property
    def bindings(self) -> dict[str, Bound]:
        given = {
            "weights": self.codes,
            "scales": self.scales.stored,
            "zeros": self.scales.zeros,
            "table": self.table,
        }
        return {name: tensor for name, tensor in given.items() if tensor is not None}

    @cached_property
    def params(self) -> dict[str, Number]:
        return {
            "depth": self.depth,
            "row_bytes": self.row_bytes,
            "group": self.group,
            "scale_column": self.scales.steps[0],
            "scale_group": self.scales.steps[1],
            "zero": float(self.zero),
        }

    @cached_property
    def defines(self) -> dict[str, Define]:
        widths = planes(self.bits)
        below = dict(zip(widths, itertools.accumulate(widths, initial=0), strict=False))
        return {
            "INTERLEAVED": self.is_interleaved,
            "BYTES": 8 in widths,
            "NIBBLES": 4 in widths,
            "PAIRS": 2 in widths,
            "SINGLES": 1 in widths,
            "BELOW_PAIRS": below.get(2, 0),
            "BELOW_SINGLES": below.get(1, 0),
            "GROUP": self.group,
            "NORMED": False,
            "ADDED": False,
            "HALVES": False,
            "APPLIED": False,
            "ROTARY": False,
            "TABLE": self.table is not None,
            "SIGNED": self.signed,
            **self.scales.defines,
        }


@op(
    "pteron.embedding_affine.default",
    work=looks_up("weights", "scales", by="indices"),
    rows=looked_up("indices"),
    integers=indexes("indices"),
)
def embedding_affine(
    weights: LiveTensor,
    scales: LiveTensor,
    bits: int,
    group_size: int,
    zero: int,
    table: LiveTensor | None,
    indices: LiveTensor,
    out: LiveTensor,
) -> Dispatch:
    """Look up rows of coded weights, and decode them."""
    depth = out.max_shape[-1]
    weight = AffineWeights.of_words(weights, scales, depth, bits, group_size, zero, table)
    return look_up(weight, indices, out)


def look_up(weight: AffineWeights, indices: LiveTensor, out: LiveTensor) -> Dispatch:
    """Rows of coded weights, decoded."""
    depth, rows = weight.depth, weight.rows
    indices.require_contents(0, rows - 1, f"an index into an embedding table of {rows} rows")
    out.resize((*indices.shape, depth))
    count = quads(out.numel)
    params = {"quads": count, "rows": rows, **weight.params}
    bindings = {"indices": indices, "y": out, **weight.bindings}
    return Dispatch("embedding_planes", bindings, params, threads(count), weight.defines)
