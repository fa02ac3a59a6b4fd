"""Matrix products by the workgroup, for GPUs: the routes of any kernel that is built on lib/dot_quads.

Such a kernel says what its operands are, in quads along the depth, and what becomes of the sums. Few rows are
multiplied by teams of lanes that share the depth, and many in tiles that share workgroup memory.
"""

from __future__ import annotations

from dataclasses import replace

from pteron.graph.dispatch import GPU, Define, Dispatch, Route, fold

TEAM_COLUMNS = 8  # of a workgroup
TEAM_ROWS = 4
FEW_ROWS = 16  # for which teams beat tiles, most of whose rows would be empty
SIDE = 64  # rows and columns of a tile


def stores(whole: bool) -> dict[str, Define]:
    """How lib/put_four writes four neighbours: as a quad, or one by one, if they have a word each."""
    return {"WHOLE": whole, "RAGGED": not whole}


def workgroup_routes(product: Dispatch, rows: int, columns: int, step: int = 4) -> list[Route]:
    """A route for each number of rows; `product` as it is but for its grid.

    `step`: quads in depth that a tile brings at a time.
    """
    return [
        Route("team gemv", [_teams(product, rows, columns, 1)], when=rows == 1, home=GPU),
        Route("team few rows", [_teams(product, rows, columns, TEAM_ROWS)], when=rows <= FEW_ROWS, home=GPU),
        Route("tile gemm", [tiled(product, rows, columns, step)], home=GPU),
    ]


def _teams(product: Dispatch, rows: int, columns: int, tall: int) -> Dispatch:
    grid = fold(-(-rows // tall) * -(-columns // TEAM_COLUMNS))
    return replace(product, grid=grid, defines={**product.defines, "IN_TEAMS": True, "ROWS": tall})


def tiled(
    product: Dispatch,
    rows: int,
    columns: int,
    step: int = 4,
    matrices: int = 1,
    rows_first: bool = False,
    columns_first: bool = False,
) -> Dispatch:
    """`rows_first`, `columns_first`: whether it is not steps in depth that lie together in memory."""
    grid = fold(matrices * -(-rows // SIDE) * -(-columns // SIDE))
    order: dict[str, Define] = {"ROWS_FIRST": rows_first, "COLUMNS_FIRST": columns_first}
    return replace(product, grid=grid, defines={**product.defines, **order, "IN_TILES": True, "QUADS": step})
