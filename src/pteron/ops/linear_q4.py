"""The 4-bit linear: x @ W^T with groups of weights that share a scale."""

from __future__ import annotations

from collections.abc import Sequence

from pteron.ir.rule import (
    WORKGROUP,
    LiveTensor,
    Number,
    Route,
    Shared,
    check,
    describe,
    multiplies,
    numel,
    op,
)
from pteron.ops.matmul import all_float32, check_bias
from pteron.ops.outputs import SideBySide
from pteron.ops.products import (
    ANY,
    GEMM,
    GEMV,
    LARGE_TILE,
    SMALL_TILE,
    SUBGROUP_FEW_ROWS,
    SUBGROUP_GEMM,
    SUBGROUP_GEMV,
    TEAM_FEW_PACKED_ROWS,
    TEAM_GEMV,
    Extent,
    KernelKind,
    Offer,
    product_routes,
)

SUBGROUP_COLUMNS = 64  # of a workgroup whose lanes share x
TEAM_COLUMNS = 2 * WORKGROUP // 16  # of a workgroup of teams


@op("et_vk.linear_q4gsw.default", work=multiplies("x"))
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
    extent = Extent(rows, columns)
    if not all_float32(x, scales, bias, *outs) or packed % 4 or group_size % 8 or depth % group_size:
        general = shared.dispatch("linear_q4_any", extent.element_quads())
        return product_routes(extent, [Offer(ANY, general)])

    def offer(kind: KernelKind, kernel: str, height: int, width: int) -> Offer:
        """A kernel whose workgroups compute so many rows and columns each."""
        grid = extent.workgroups(height, width)
        dispatch = shared.dispatch(kernel, grid, ROWS=height, SIXTEEN=height == 16, ELEMENT="f32")
        return Offer(kind, dispatch)

    offers = [
        offer(SUBGROUP_GEMV, "linear_q4_row", 1, SUBGROUP_COLUMNS),
        offer(SUBGROUP_FEW_ROWS, "linear_q4_subgroup", 8, SUBGROUP_COLUMNS),
        offer(SUBGROUP_GEMM, "linear_q4_subgroup", 16, SUBGROUP_COLUMNS),
        offer(GEMV, "linear_q4", 1, WORKGROUP),
        offer(LARGE_TILE, "linear_q4_tile", 64, 64),
        offer(SMALL_TILE, "linear_q4_tile", 32, 32),
        offer(GEMM, "linear_q4", 4, WORKGROUP),
    ]
    if group_size % 32 == 0 and packed % 16 == 0:  # the four words that a lane reads lie in one group
        offers.append(offer(TEAM_GEMV, "linear_q4_teams", 1, TEAM_COLUMNS))
        offers.append(offer(TEAM_FEW_PACKED_ROWS, "linear_q4_teams", 4, TEAM_COLUMNS))
    return product_routes(extent, offers)
