"""Linear layers whose weights are stored as codes of 2 to 8 bits (see `affine`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from pteron.ir.rule import (
    WORKGROUP,
    Define,
    LiveTensor,
    Number,
    Route,
    Shared,
    check,
    describe,
    multiplies,
    numel,
    op,
    rows_of,
)
from pteron.ops.affine import AffineWeights
from pteron.ops.matmul import all_float32, check_bias
from pteron.ops.outputs import SideBySide, with_three_outputs
from pteron.ops.products import (
    ANY,
    GEMM,
    GEMV,
    LARGE_TILE,
    SMALL_TILE,
    SUBGROUP_FOUR_ROWS,
    SUBGROUP_GEMM,
    SUBGROUP_GEMV,
    SUBGROUP_TWO_ROWS,
    TEAM_FEW_PACKED_ROWS,
    TEAM_GEMV,
    Extent,
    KernelKind,
    Offer,
    product_routes,
)

SUBGROUP_COLUMNS = 64  # columns per workgroup of the subgroup kernels
# The subgroup kernels for weights in parts of 16 codes, and for others: kind, file and rows.
BY_PARTS = (
    (SUBGROUP_GEMV, "linear_affine_blocks", 1),
    (SUBGROUP_TWO_ROWS, "linear_affine_blocks", 2),
    (SUBGROUP_FOUR_ROWS, "linear_affine_parts", 4),
    (SUBGROUP_GEMM, "linear_affine_parts", 8),
)
BY_GROUPS = (
    (SUBGROUP_GEMV, "linear_affine_few", 1),
    (SUBGROUP_TWO_ROWS, "linear_affine_few", 2),
    (SUBGROUP_FOUR_ROWS, "linear_affine_few", 4),
    (SUBGROUP_GEMM, "linear_affine_subgroup", 8),
)
TEAM_COLUMNS = 2 * WORKGROUP // 16  # columns per workgroup of the team kernel


@op("pteron.linear_affine.default", work=multiplies("x"), rows=rows_of("x", mixes=-1))
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
    """x @ W^T + bias. The columns go to one output, or to several outputs of fixed width."""
    for out in outs:
        out.resize((*x.shape[:-1], out.max_shape[-1]))
    sides = SideBySide.of(outs)
    depth, columns = weight.depth, sides.columns
    check(x.shape[-1] == depth, f"x has rows of {x.shape[-1]} elements, but the weights need {depth}")
    check(
        weight.rows >= columns,
        f"weights of shape {describe(weight.codes.shape)} do not fit {columns} columns of {depth} elements",
    )
    check_bias(bias, columns)
    rows = numel(x.shape[:-1])
    bindings = {"x": x, **weight.bindings, **({"bias": bias} if bias else {}), **sides.bindings}
    params: dict[str, Number] = {"rows": rows, **sides.params, **weight.params}
    shared = Shared(bindings, params, {"HAS_BIAS": bias is not None, **weight.defines, **sides.defines})
    extent = Extent(rows, columns)
    any_form = Offer(ANY, shared.dispatch("linear_affine_any", extent.element_quads()))
    if not all_float32(x, bias, *outs) or not has_whole_groups(weight):
        return product_routes(extent, [any_form])

    def offer(
        kind: KernelKind,
        kernel: str,
        height: int,
        width: int,
        more: Mapping[str, Define] = MappingProxyType({}),
    ) -> Offer:
        """A kernel whose workgroups compute `height` rows and `width` columns."""
        grid = extent.workgroups(height, width)
        return Offer(kind, shared.dispatch(kernel, grid, ROWS=height, ELEMENT="f32", **more))

    def part_offer(kind: KernelKind, kernel: str, height: int) -> Offer:
        made = offer(kind, kernel, height, SUBGROUP_COLUMNS, part_sizes(weight, height))
        return replace(made, dispatch=with_three_outputs(made.dispatch))

    if suits_parts(weight):
        by_subgroups = [part_offer(*each) for each in BY_PARTS]
    else:
        by_subgroups = [offer(*each, SUBGROUP_COLUMNS) for each in BY_GROUPS]
    if weight.is_interleaved:
        return product_routes(extent, [*by_subgroups, any_form])
    offers = [
        *by_subgroups,
        offer(GEMV, "linear_affine", 1, WORKGROUP),
        offer(LARGE_TILE, "linear_affine_tile", 64, 64),
        offer(SMALL_TILE, "linear_affine_tile", 32, 32),
        offer(GEMM, "linear_affine", 4, WORKGROUP),
    ]
    if suits_teams(weight):
        offers.append(offer(TEAM_GEMV, "linear_affine_teams", 1, TEAM_COLUMNS))
        offers.append(offer(TEAM_FEW_PACKED_ROWS, "linear_affine_teams", 4, TEAM_COLUMNS))
    return product_routes(extent, offers)


def has_whole_groups(weight: AffineWeights) -> bool:
    """Whether rows are whole words and whole groups, which all kernels but `linear_affine_any` need."""
    word = 8 if weight.bits == 8 else 4  # bytes that a kernel loads at once
    return weight.row_bytes % word == 0 and weight.group % 8 == 0 and weight.depth % weight.group == 0


def suits_parts(weight: AffineWeights) -> bool:
    """Whether a row is whole pairs of parts of 16 codes, of one plane, and every pair has one scale."""
    one_plane = weight.bits in (4, 8) and weight.table is None and not weight.signed
    return one_plane and weight.group % 32 == 0 and weight.row_bytes % (2 * weight.bits) == 0


def part_sizes(weight: AffineWeights, rows: int) -> dict[str, Define]:
    """What the kernels for parts of 16 codes need to know."""
    return {"BITS": weight.bits, "PAIRS_PER_GROUP": weight.group // 32, "EIGHTS": rows // 4}


def suits_teams(weight: AffineWeights) -> bool:
    """Whether a lane of a team can read four words at a time, and sixteen weights that share one scale."""
    return weight.depth % 32 == 0 and weight.group % 16 == 0 and weight.row_bytes % 16 == 0
