"""The kinds of products with subgroups: the lanes exchange the elements of one operand."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pteron.compiler.ir.dispatch import SOFTWARE, SUBGROUP
from pteron.compiler.ops.products import Candidate, GemmShape, KernelKind, is_one_row, up_to

LANES = 8
FEW_ROWS = 8
TILE_COST = 5  # a tile of a subgroup has a fixed cost: as much as five more rows


def _kind(name: str, fits: Callable[[GemmShape], bool] | None = None) -> KernelKind:
    return KernelKind(name, SOFTWARE, (SUBGROUP,), fits)


def _fills_32_rows(gemm: GemmShape) -> bool:
    """Whether tiles of 32 rows take less time than tiles of 16, for which less of the last tile is empty."""
    tall, low = (-(-gemm.rows // height) * (height + TILE_COST) for height in (32, 16))
    return tall < low


def _exceeds_32_rows(least: int, most: int) -> Callable[[GemmShape], bool]:
    """Whether so many rows are left after some tiles of 32 rows."""
    return lambda gemm: gemm.rows > 32 and least <= gemm.rows % 32 <= most


SUBGROUP_GEMV = _kind("subgroup gemv", is_one_row)
SUBGROUP_2_ROWS = _kind("subgroup two rows", up_to(2))
SUBGROUP_4_ROWS = _kind("subgroup four rows", up_to(4))
SUBGROUP_8_ROWS = _kind("subgroup few rows", up_to(FEW_ROWS))
SUBGROUP_32_PLUS_8 = _kind("subgroup 32 plus 8 rows", _exceeds_32_rows(1, 8))
SUBGROUP_32_PLUS_16 = _kind("subgroup 32 plus 16 rows", _exceeds_32_rows(9, 16))
SUBGROUP_32_ROWS = _kind("subgroup 32 rows", _fills_32_rows)
SUBGROUP_POSITIONS = _kind("rows subgroup gemm")
SUBGROUP_GEMM = _kind("subgroup gemm")
SUBGROUP_UNFOLDED = _kind("unfolded subgroup gemm")

# The fastest kind first.
ORDER = (
    SUBGROUP_GEMV,
    SUBGROUP_2_ROWS,
    SUBGROUP_4_ROWS,
    SUBGROUP_8_ROWS,
    SUBGROUP_32_PLUS_8,
    SUBGROUP_32_PLUS_16,
    SUBGROUP_32_ROWS,
    SUBGROUP_POSITIONS,
    SUBGROUP_GEMM,
    SUBGROUP_UNFOLDED,
)


def in_order(candidates: Iterable[Candidate]) -> list[Candidate]:
    return sorted(candidates, key=lambda candidate: ORDER.index(candidate.kind))
