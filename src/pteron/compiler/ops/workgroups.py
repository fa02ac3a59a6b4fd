"""Team and tile kernels that include lib/dot_quads.wgsl.

Such a kernel defines how to read its operands, in quads along the depth, and how to store a sum. The same
text is used for teams (lanes divide the depth) and for tiles (operands are in workgroup memory).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from pteron.compiler.ir.rule import Define, Dispatch
from pteron.compiler.ops.products import (
    BROAD_TILE,
    SMALL_TILE,
    TALL_TILE,
    TEAM_FEW_ROWS,
    TEAM_GEMV,
    Candidate,
    GemmShape,
    KernelKind,
)

TEAM_COLUMNS = 8  # per workgroup
TEAM_ROWS = 4


@dataclass(frozen=True, slots=True)
class TileShape:
    """The block of a workgroup, in units of 32. `slices` sets of 64 lanes divide the depth.

    A lane computes 4 * tall rows of 4 * broad columns. Larger blocks read workgroup memory less often,
    smaller ones keep more lanes busy.
    """

    tall: int
    broad: int
    slices: int

    def candidate(
        self, kind: KernelKind, product: Dispatch, gemm: GemmShape, packed: bool = False, depth: int = 0
    ) -> Candidate:
        """`product`, a kernel that includes lib/tile_core.wgsl. See `tile_candidates`."""
        later = (4 * self.tall - 1) * self.broad  # sums of a lane, without those of its first row
        size = {"TALL": self.tall, "BROAD": self.broad, "SLICES": self.slices, "LATER": later}
        steps = {"QUADS": 8, "STEPS": 1} if packed else {"QUADS": 2, "STEPS": 4}
        whole = depth > 0 and depth % (4 * steps["QUADS"] * self.slices) == 0
        defines: dict[str, Define] = {**product.defines, **size, **steps, "WHOLE": whole}
        grid = gemm.workgroups(32 * self.tall, 32 * self.broad)
        return Candidate(kind, replace(product, grid=grid, defines=defines))


# A workgroup may use 16 KiB: four slices of a broad tile do not fit.
TILES = {BROAD_TILE: TileShape(2, 2, 2), TALL_TILE: TileShape(2, 1, 4), SMALL_TILE: TileShape(1, 1, 4)}
# For kernels that need so many registers that tall tiles do not fit those of Intel's GPUs.
SQUARE_TILES = (BROAD_TILE, SMALL_TILE)


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
    rows_first: bool = False,
    columns_first: bool = False,
    when: bool | None = None,
    packed: bool = False,
    needs: tuple[str, ...] = (),
    depth: int = 0,
    kinds: Iterable[KernelKind] = tuple(TILES),
) -> list[Candidate]:
    """`product` with tiles of several sizes. Its grid is replaced.

    packed: a quad is one word. depth: if it never changes.

    `rows_first`, `columns_first`: neighbours in memory are rows or columns of an operand, not steps in depth.
    """
    order = {"ROWS_FIRST": rows_first, "COLUMNS_FIRST": columns_first, "IN_TEAMS": False}
    ordered = replace(product, defines={**product.defines, **order})
    tiles = [TILES[kind].candidate(kind, ordered, gemm, packed, depth) for kind in kinds]
    return [replace(each, when=when, needs=needs) for each in tiles]
