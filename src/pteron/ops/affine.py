"""Weights that are stored as codes of 2 to 8 bits, and the embedding that reads them.

A row of weights is divided into groups, and each group has a scale. A weight is scale * (code - zero),
scale * code + minimum if the groups have minima, or scale * table[code] if there is a table.

A code of 8 bits is one byte. A shorter code is split into planes of 4 bits, 2 bits and 1 bit, the low bits
first. For example, a code of 6 bits has a plane of 4 bits and a plane of 2 bits. Each plane of a row is
packed into whole words. The first code has the lowest bits of a word.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from pteron.ir.rule import (
    Bound,
    Define,
    Dispatch,
    DType,
    LiveTensor,
    Number,
    check,
    describe,
    looks_up,
    op,
    quads,
    threads,
)

PLANES = (8, 4, 2, 1)  # bits


def planes(bits: int) -> tuple[int, ...]:
    """The widths in bits of the planes of a code, the plane with the lowest bits first."""
    return tuple(width for width in PLANES if bits & width)


def row_words(bits: int, depth: int) -> int:
    """The number of words that a row of codes takes."""
    return sum(-(-depth * width // 32) for width in planes(bits))


@dataclass(frozen=True)
class AffineWeights:
    """Coded weights [rows, depth], as a kernel reads them. `scale_steps` is the layout of the scales."""

    codes: LiveTensor  # words or bytes
    scales: LiveTensor
    depth: int
    bits: int
    group: int
    row_bytes: int
    scale_steps: tuple[int, int]  # the stride of the scales from row to row, and from group to group
    zero: int = 0
    table: LiveTensor | None = None
    has_minima: bool = False

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
        """Codes are [rows, words]. Scales are [rows, groups], or [rows, groups, 2] with (scale, minimum)."""
        check(2 <= bits <= 8, f"bits must be from 2 to 8, not {bits}")
        check(group > 0, f"group_size must be positive, not {group}")
        words, groups = row_words(bits, depth), -(-depth // group)
        check(
            codes.rank == 2 and codes.dtype is DType.int32 and codes.shape[1] >= words,
            f"weights must be int32 [rows, {words} or more], not {codes.dtype} {describe(codes.shape)}",
        )
        check(
            scales.dtype.is_float
            and (scales.rank == 2 or (scales.rank == 3 and scales.shape[2] == 2))
            and scales.shape[0] >= codes.shape[0]
            and scales.shape[1] >= groups,
            f"scales must be floats [{codes.shape[0]}, {groups}] or, with minima, "
            f"[{codes.shape[0]}, {groups}, 2], not {scales.dtype} {describe(scales.shape)}",
        )
        check(
            table is None or (table.dtype is DType.float32 and table.numel >= 1 << bits),
            f"the table must have {1 << bits} float32 elements for codes of {bits} bits",
        )
        steps = (scales.shape[1], 1)
        row_bytes = 4 * codes.shape[1]
        return cls(codes, scales, depth, bits, group, row_bytes, steps, zero, table, scales.rank == 3)

    @cached_property
    def bindings(self) -> dict[str, Bound]:
        found: dict[str, Bound] = {"weights": self.codes, "scales": self.scales}
        return found if self.table is None else {**found, "table": self.table}

    @cached_property
    def params(self) -> dict[str, Number]:
        return {
            "depth": self.depth,
            "row_bytes": self.row_bytes,
            "group": self.group,
            "scale_column": self.scale_steps[0],
            "scale_group": self.scale_steps[1],
            "zero": float(self.zero),
        }

    @cached_property
    def defines(self) -> dict[str, Define]:
        widths = planes(self.bits)
        half = self.scales.dtype is DType.float16
        below = dict(zip(widths, accumulate(widths, initial=0), strict=False))
        return {
            "BYTES": 8 in widths,
            "NIBBLES": 4 in widths,
            "PAIRS": 2 in widths,
            "SINGLES": 1 in widths,
            "BELOW_PAIRS": below.get(2, 0),
            "BELOW_SINGLES": below.get(1, 0),
            "TABLE": self.table is not None,
            "PLAIN": self.table is None,
            "HALF_SCALES": half and not self.has_minima,
            "FULL_SCALES": not half and not self.has_minima,
            "HALF_MINIMA": half and self.has_minima,
            "FULL_MINIMA": not half and self.has_minima,
        }


@op("pteron.embedding_affine.default", work=looks_up("weights", "scales", by="indices"))
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
    rows = weights.shape[0]
    indices.require_contents(0, rows - 1, f"an index into an embedding table of {rows} rows")
    out.resize((*indices.shape, depth))
    count = quads(out.numel)
    params = {"quads": count, "rows": rows, **weight.params}
    bindings = {"indices": indices, "y": out, **weight.bindings}
    return Dispatch("embedding_planes", bindings, params, threads(count), weight.defines)
