"""Team and tile kernels that include lib/dot_quads.wgsl.

Such a kernel defines how to read its operands, in quads along the depth, and how to store a sum. The same
text is used for teams (lanes divide the depth) and for tiles (operands are in workgroup memory).
"""

from __future__ import annotations

from dataclasses import replace

from pteron.compiler.ir.rule import Define, Dispatch
from pteron.compiler.ops.products import (
    LARGE_TILE,
    SMALL_TILE,
    TEAM_FEW_ROWS,
    TEAM_GEMV,
    Candidate,
    GemmShape,
    KernelKind,
)

TEAM_COLUMNS = 8  # per workgroup
TEAM_ROWS = 4
TILE_SIDES = {LARGE_TILE: 64, SMALL_TILE: 32}  # rows and columns


def stores(whole: bool) -> dict[str, Define]:
    """Defines for lib/put_four.wgsl: it stores four neighbours as one quad (`whole`), or one by one."""
    return {"RAGGED": not whole}


def team_candidates(product: Dispatch, gemm: GemmShape) -> list[Candidate]:
    """`product` as team kernels, for one row and for a few rows. Its grid is replaced."""

    def teams(kind: KernelKind, height: int) -> Candidate:
        grid = gemm.workgroups(height, TEAM_COLUMNS)
        defines = {**product.defines, "IN_TEAMS": True, "ROWS": height}
        return Candidate(kind, replace(product, grid=grid, defines=defines))

    return [teams(TEAM_GEMV, 1), teams(TEAM_FEW_ROWS, TEAM_ROWS)]


def tile_candidates(
    product: Dispatch,
    gemm: GemmShape,
    step: int = 4,
    rows_first: bool = False,
    columns_first: bool = False,
    when: bool | None = None,
) -> list[Candidate]:
    """`product` with large and with small tiles. Its grid is replaced. `step`: quads in depth per iteration.

    `rows_first`, `columns_first`: neighbours in memory are rows or columns of an operand, not steps in depth.
    """
    order = {"ROWS_FIRST": rows_first, "COLUMNS_FIRST": columns_first}

    def tiles(kind: KernelKind, side: int) -> Candidate:
        defines = {**product.defines, **order, "IN_TEAMS": False, "QUADS": step, "SIDE": side}
        return Candidate(kind, replace(product, grid=gemm.workgroups(side, side), defines=defines), when)

    return [tiles(kind, side) for kind, side in TILE_SIDES.items()]
