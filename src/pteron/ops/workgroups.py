"""Matrix products by the workgroup, for GPUs: the routes of any kernel that is built on lib/dot_quads.

Such a kernel says what its operands are, in quads along the depth, and what becomes of the sums. Few rows are
multiplied by teams of lanes that share the depth, and many in tiles that share workgroup memory.
"""

from __future__ import annotations

from dataclasses import replace

from pteron.ir.rule import GPU, Define, Dispatch, Route, fold

TEAM_COLUMNS = 8  # of a workgroup
TEAM_ROWS = 4
FEW_ROWS = 16  # for which teams beat tiles, most of whose rows would be empty
SMALL_SIDE, LARGE_SIDE = 32, 64  # rows and columns of a tile
MANY_ELEMENTS = 128 * LARGE_SIDE**2  # of an output whose large tiles keep a GPU busy


def stores(whole: bool) -> dict[str, Define]:
    """How lib/put_four writes four neighbours: as a quad, or one by one, if they have a word each."""
    return {"WHOLE": whole, "RAGGED": not whole}


def workgroup_routes(product: Dispatch, rows: int, columns: int, step: int = 4) -> list[Route]:
    """A route for each number of rows; `product` as it is but for its grid."""

    def teams(name: str, tall: int, when: bool) -> Route:
        grid = fold(-(-rows // tall) * -(-columns // TEAM_COLUMNS))
        defines = {**product.defines, "IN_TEAMS": True, "ROWS": tall}
        return Route(name, [replace(product, grid=grid, defines=defines)], when, home=GPU)

    return [
        teams("team gemv", 1, rows == 1),
        teams("team few rows", TEAM_ROWS, rows <= FEW_ROWS),
        *tile_routes(product, rows, columns, step),
    ]


def tile_routes(
    product: Dispatch,
    rows: int,
    columns: int,
    step: int = 4,
    matrices: int = 1,
    rows_first: bool = False,
    columns_first: bool = False,
    when: bool | None = None,
) -> list[Route]:
    """In large tiles, or where these would be few, in small ones. `step`: quads in depth at a time.

    `rows_first`, `columns_first`: whether it is not steps in depth that lie together in memory.
    """
    order = {"ROWS_FIRST": rows_first, "COLUMNS_FIRST": columns_first}

    def tiles(name: str, side: int, when: bool | None) -> Route:
        grid = fold(matrices * -(-rows // side) * -(-columns // side))
        defines = {**product.defines, **order, "IN_TILES": True, "QUADS": step, "SIDE": side}
        return Route(name, [replace(product, grid=grid, defines=defines)], when, home=GPU)

    many = matrices * rows * columns >= MANY_ELEMENTS
    return [
        tiles("large tile gemm", LARGE_SIDE, when is not False and many),
        tiles("small tile gemm", SMALL_SIDE, when),
    ]
