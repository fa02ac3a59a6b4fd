"""The 4-bit linear: x @ W^T with groups of weights that share a scale."""

from __future__ import annotations

from collections.abc import Sequence

from pteron.graph.dispatch import GPU, WORKGROUP, Dispatch, Route, describe, fold
from pteron.graph.live import LiveTensor
from pteron.graph.op import check, op
from pteron.graph.values import numel
from pteron.ops.matmul import all_float32, check_bias, subgroup_routes, tiles_1d
from pteron.ops.outputs import SideBySide

ROWS = 4  # that one invocation computes, where there are several
TEAM_COLUMNS = 2 * WORKGROUP // 16  # of a workgroup of teams
FEW_ROWS = 2 * ROWS  # for which teams beat tiles, most of whose rows would be empty
TILE = 64  # rows and columns of a workgroup that shares its memory


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
    sides = SideBySide.of(outs, x.shape[:-1])
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
    params = {
        "rows": rows,
        **sides.params,
        "depth": depth,
        "packed": packed,
        "group": group_size,
        "scale_row": scales.shape[1],
    }
    defines = {"HAS_BIAS": bias is not None, **sides.defines}
    if not all_float32(x, scales, bias, *outs) or packed % 4 or group_size % 8 or depth % group_size:
        grid = tiles_1d(rows * columns)
        return [Route("any", [Dispatch("linear_q4_any", bindings, params, grid, defines)])]

    def blocks(kernel: str, down: int, across: int) -> Dispatch:
        grid = fold(-(-rows // down) * -(-columns // across))
        return Dispatch(kernel, bindings, params, grid, {**defines, "ROWS": down})

    routes = subgroup_routes("linear_q4_subgroup", bindings, params, defines)
    if group_size % 32 == 0 and packed % 16 == 0:
        one, few = (blocks("linear_q4_teams", tall, TEAM_COLUMNS) for tall in (1, ROWS))
        routes += [
            Route("team gemv", [one], when=rows == 1, home=GPU),
            Route("team few rows", [few], when=rows <= FEW_ROWS, home=GPU),
        ]
    return [
        *routes,
        Route("gemv", [blocks("linear_q4", 1, WORKGROUP)], when=rows == 1),
        Route("tile gemm", [blocks("linear_q4_tile", TILE, TILE)], home=GPU),
        Route("gemm", [blocks("linear_q4", ROWS, WORKGROUP)]),
    ]
