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
    HALVED_TILES,
    PACKED_BROAD_TILE,
    PACKED_TALL_TILE,
    PACKED_TILE,
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
        self,
        kind: KernelKind,
        product: Dispatch,
        gemm: GemmShape,
        packed: bool = False,
        depth: int = 0,
        block: int = 0,
        halved: bool = False,
    ) -> Candidate:
        """`product`, a kernel that includes lib/tile_core.wgsl. See `tile_candidates`.

        block: the steps in depth that have one scale; 0: no scales.
        """
        later = (4 * self.tall - 1) * self.broad  # sums of a lane, without those of its first row
        size = {"TALL": self.tall, "BROAD": self.broad, "SLICES": self.slices, "LATER": later}
        quads = block // 4 or (8 if packed else 4 if halved else 2)
        whole = depth > 0 and depth % (4 * quads * self.slices) == 0
        steps = {"QUADS": quads, "STEPS": 1 if packed else 4, "WHOLE": whole}
        sums = {"HALVED": halved, "SCALED": block > 0, "APART": halved or block > 0}
        defines: dict[str, Define] = {**product.defines, **size, **steps, **sums}
        grid = gemm.workgroups(32 * self.tall, 32 * self.broad)
        return Candidate(kind, replace(product, grid=grid, defines=defines))


# A workgroup may use 16 KiB: four slices of a broad tile do not fit.
TILES = {BROAD_TILE: TileShape(2, 2, 2), TALL_TILE: TileShape(2, 1, 4), SMALL_TILE: TileShape(1, 1, 4)}
# For kernels that need so many registers that tall tiles do not fit those of Intel's GPUs.
SQUARE_TILES = (BROAD_TILE, SMALL_TILE)


# Operands of 8 bits leave room for more slices.
PACKED_TILES = {
    PACKED_BROAD_TILE: TileShape(2, 2, 2),
    PACKED_TALL_TILE: TileShape(2, 1, 2),
    PACKED_TILE: TileShape(1, 1, 4),
}


def stores(whole: bool) -> dict[str, Define]:
    """Defines for lib/put_four.wgsl: it stores four neighbours as one quad (`whole`), or one by one."""
    return {"RAGGED": not whole}


def team_candidates(product: Dispatch, gemm: GemmShape) -> list[Candidate]:
    """`product` as team kernels, for one row and for a few rows. Its grid is replaced."""

    def teams(kind: KernelKind, height: int) -> Candidate:
        grid = gemm.workgroups(height, TEAM_COLUMNS)
        defines = {**product.defines, "IN_TEAMS": True, "SCALED": False, "ROWS": height}
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
    halved: bool = False,
) -> list[Candidate]:
    """`product` with tiles of several sizes. Its grid is replaced.

    packed: a quad is one word. depth: if it never changes. halved: also tiles of operands in float16.

    `rows_first`, `columns_first`: neighbours in memory are rows or columns of an operand, not steps in depth.
    """
    order = {"ROWS_FIRST": rows_first, "COLUMNS_FIRST": columns_first, "IN_TEAMS": False}
    ordered = replace(product, defines={**product.defines, **order})
    tiles = [TILES[kind].candidate(kind, ordered, gemm, packed, depth) for kind in kinds]
    if halved:
        kept = ((HALVED_TILES[kind], TILES[kind]) for kind in kinds)
        tiles += [tile.candidate(kind, ordered, gemm, depth=depth, halved=True) for kind, tile in kept]
    return [replace(each, when=when, needs=needs) for each in tiles]


def packed_tile_candidates(product: Dispatch, gemm: GemmShape, block: int, depth: int) -> list[Candidate]:
    """`product`, a kernel of 8-bit integers with a scale for every `block` steps, with several tiles."""
    order = {"ROWS_FIRST": False, "COLUMNS_FIRST": False, "IN_TEAMS": False}
    ordered = replace(product, defines={**product.defines, **order})
    return [tile.candidate(kind, ordered, gemm, True, depth, block) for kind, tile in PACKED_TILES.items()]
