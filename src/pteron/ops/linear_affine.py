"""Linear layers over weights in codes of few bits: x @ W^T, in groups of weights that share a scale."""

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
from pteron.ops.affine import AffineWeights
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


@op("pteron.linear_affine.default", work=multiplies("x"))
def linear_affine(
    x: LiveTensor,
    weights: LiveTensor,
    scales: LiveTensor,
    bits: int,
    group_size: int,
    zero: int,
    table: LiveTensor | None,
    bias: LiveTensor | None,
    out: LiveTensor,
) -> list[Route]:
    weight = AffineWeights.of_words(weights, scales, x.max_shape[-1], bits, group_size, zero, table)
    return product_affine(x, weight, bias, (out,))


def product_affine(
    x: LiveTensor, weight: AffineWeights, bias: LiveTensor | None, outs: Sequence[LiveTensor]
) -> list[Route]:
    """x @ W^T + bias, its columns in one output, or dealt to several of fixed width."""
    for out in outs:
        out.resize((*x.shape[:-1], out.max_shape[-1]))
    sides = SideBySide.of(outs)
    depth, columns = weight.depth, sides.columns
    check(x.shape[-1] == depth, f"x has rows of {x.shape[-1]} elements, but the weights want {depth}")
    check(
        weight.codes.shape[0] >= columns,
        f"weights of shape {describe(weight.codes.shape)} do not fit {columns} columns of {depth} elements",
    )
    check_bias(bias, columns)
    rows = numel(x.shape[:-1])
    bindings = {"x": x, **weight.bindings, **({"bias": bias} if bias else {}), **sides.bindings}
    params: dict[str, Number] = {"rows": rows, **sides.params, **weight.params}
    shared = Shared(bindings, params, {"HAS_BIAS": bias is not None, **weight.defines, **sides.defines})
    extent = Extent(rows, columns)
    whole = weight.row_bytes % 4 == 0 and weight.group % 8 == 0 and depth % weight.group == 0
    if not all_float32(x, bias, *outs) or not whole:
        return product_routes(
            extent, [Offer(ANY, shared.dispatch("linear_affine_any", extent.element_quads()))]
        )

    def offer(kind: KernelKind, kernel: str, height: int, width: int) -> Offer:
        """A kernel whose workgroups compute so many rows and columns each."""
        grid = extent.workgroups(height, width)
        dispatch = shared.dispatch(kernel, grid, ROWS=height, SIXTEEN=height == 16, ELEMENT="f32")
        return Offer(kind, dispatch)

    offers = [
        offer(SUBGROUP_GEMV, "linear_affine_row", 1, SUBGROUP_COLUMNS),
        offer(SUBGROUP_FEW_ROWS, "linear_affine_subgroup", 8, SUBGROUP_COLUMNS),
        offer(SUBGROUP_GEMM, "linear_affine_subgroup", 16, SUBGROUP_COLUMNS),
        offer(GEMV, "linear_affine", 1, WORKGROUP),
        offer(LARGE_TILE, "linear_affine_tile", 64, 64),
        offer(SMALL_TILE, "linear_affine_tile", 32, 32),
        offer(GEMM, "linear_affine", 4, WORKGROUP),
    ]
    # A lane of a team reads whole quads of words, and sixteen steps with one scale.
    if depth % 32 == 0 and weight.group % 16 == 0 and weight.row_bytes % 16 == 0:
        offers.append(offer(TEAM_GEMV, "linear_affine_teams", 1, TEAM_COLUMNS))
        offers.append(offer(TEAM_FEW_PACKED_ROWS, "linear_affine_teams", 4, TEAM_COLUMNS))
    return product_routes(extent, offers)
