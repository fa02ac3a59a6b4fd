"""The 4-bit linear: x @ W^T with groups of weights that share a scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pteron.ir.rule import (
    GPU,
    SOFTWARE,
    SUBGROUP,
    WORKGROUP,
    LiveTensor,
    Number,
    Route,
    Shared,
    check,
    describe,
    fold,
    numel,
    op,
)
from pteron.ops.matmul import all_float32, check_bias, tiles_1d
from pteron.ops.outputs import SideBySide

ROWS = 4  # that one invocation computes, where there are several
TEAM_COLUMNS = 2 * WORKGROUP // 16  # of a workgroup of teams
FEW_ROWS = 2 * ROWS  # for which teams beat tiles, most of whose rows would be empty
LARGE_TILE, SMALL_TILE = 64, 32  # rows and columns of a workgroup that shares its memory
MANY_ELEMENTS = 128 * LARGE_TILE**2  # of outputs whose large tiles keep a GPU busy
SUBGROUP_COLUMNS = 64  # of a workgroup whose lanes share x


@op("et_vk.linear_q4gsw.default")
def linear_q4gsw(
    x: LiveTensor,
    weights: LiveTensor,
    scales: LiveTensor,
    group_size: int,
    bias: LiveTensor | None,
    out: LiveTensor,
) -> list[Route]:
    return product_q4(x, weights, scales, group_size, bias, (out,))


def product_q4(
    x: LiveTensor,
    weights: LiveTensor,
    scales: LiveTensor,
    group_size: int,
    bias: LiveTensor | None,
    outs: Sequence[LiveTensor],
) -> list[Route]:
    """W is [N, ceil(K/2)] bytes, even k in the low nibble; scales are [K/group, N] or wider."""
    check(weights.rank == 2, f"weights must have 2 dimensions, not shape {describe(weights.shape)}")
    check(group_size > 0, f"group_size must be positive, not {group_size}")
    for out in outs:
        out.resize((*x.shape[:-1], out.max_shape[-1]))
    sides = SideBySide.of(outs)
    depth, columns = x.shape[-1], sides.columns
    packed = weights.shape[1]
    check(depth == x.max_shape[-1], f"x has rows of {depth} elements, but the weights want {x.max_shape[-1]}")
    check(
        weights.shape[0] >= columns and (depth + 1) // 2 <= packed,
        f"weights of shape {describe(weights.shape)} do not fit {columns} columns of {depth} elements",
    )
    groups = -(-depth // group_size)
    check(
        scales.rank == 2 and scales.shape[0] >= groups and scales.shape[1] >= columns,
        f"scales have shape {describe(scales.shape)}, but {groups} groups of {columns} columns are needed",
    )
    check_bias(bias, columns)
    rows = numel(x.shape[:-1])
    bindings = {"x": x, "weights": weights, "scales": scales, "bias": bias or scales, **sides.bindings}
    params: dict[str, Number] = {
        "rows": rows,
        **sides.params,
        "depth": depth,
        "packed": packed,
        "group": group_size,
        "scale_row": scales.shape[1],
    }
    shared = Shared(bindings, params, {"HAS_BIAS": bias is not None, **sides.defines})
    if not all_float32(x, scales, bias, *outs) or packed % 4 or group_size % 8 or depth % group_size:
        return [Route("any", [shared.dispatch("linear_q4_any", tiles_1d(rows * columns))])]
    work = Work(shared, rows, columns)
    few = work.team_routes() if group_size % 32 == 0 and packed % 16 == 0 else []
    return [
        *work.subgroup_routes(),
        *few,
        work.route("gemv", "linear_q4", (1, WORKGROUP), rows == 1),
        *work.tile_routes(),
        work.route("gemm", "linear_q4", (ROWS, WORKGROUP)),
    ]


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be done, and the kernels for it."""

    shared: Shared
    rows: int
    columns: int

    def route(
        self,
        name: str,
        kernel: str,
        block: tuple[int, int],
        when: bool | None = None,
        needs: str | None = None,
        home: str | None = None,
    ) -> Route:
        """A kernel whose workgroups compute so many rows and columns each."""
        down, across = block
        grid = fold(-(-self.rows // down) * -(-self.columns // across))
        dispatch = self.shared.dispatch(kernel, grid, ROWS=down, SIXTEEN=down == 16, ELEMENT="f32")
        return Route(name, [dispatch], when, needs, home)

    def subgroup_routes(self) -> list[Route]:
        """Lanes that share x, for software adapters."""

        def route(name: str, kernel: str, down: int, when: bool | None = None) -> Route:
            return self.route(name, kernel, (down, SUBGROUP_COLUMNS), when, SUBGROUP, SOFTWARE)

        return [
            route("subgroup gemv", "linear_q4_row", 1, self.rows == 1),
            route("subgroup few rows", "linear_q4_subgroup", 8, self.rows <= 8),
            route("subgroup gemm", "linear_q4_subgroup", 16),
        ]

    def team_routes(self) -> list[Route]:
        """Lanes that share the depth of a column, where four words lie in one group."""

        def route(name: str, down: int, when: bool) -> Route:
            return self.route(name, "linear_q4_teams", (down, TEAM_COLUMNS), when, home=GPU)

        return [
            route("team gemv", 1, self.rows == 1),
            route("team few rows", ROWS, self.rows <= FEW_ROWS),
        ]

    def tile_routes(self) -> list[Route]:
        """Lanes that share x and W in workgroup memory."""

        def route(name: str, side: int, when: bool | None = None) -> Route:
            return self.route(name, "linear_q4_tile", (side, side), when, home=GPU)

        return [
            route("large tile gemm", LARGE_TILE, self.rows * self.columns >= MANY_ELEMENTS),
            route("small tile gemm", SMALL_TILE),
        ]
