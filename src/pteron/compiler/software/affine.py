"""Linear layers whose weights are codes of 2 to 8 bits."""

from __future__ import annotations

from dataclasses import replace

from pteron.compiler.ir.extensions import extra_routes
from pteron.compiler.ir.rule import Define, Dispatch, Scratch
from pteron.compiler.ops.affine import AffineWeights
from pteron.compiler.ops.linear_affine import AffineProduct
from pteron.compiler.ops.outputs import MAX_OUTPUTS, NAMES
from pteron.compiler.ops.products import Candidate, KernelKind
from pteron.compiler.software.kinds import (
    SUBGROUP_2_ROWS,
    SUBGROUP_4_ROWS,
    SUBGROUP_GEMM,
    SUBGROUP_GEMV,
    in_order,
)

COLUMNS = 64  # per workgroup
# The kernels for weights in parts of 16 codes, and for others: kind, file and rows.
BY_PARTS = (
    (SUBGROUP_GEMV, "linear_affine_blocks", 1),
    (SUBGROUP_2_ROWS, "linear_affine_blocks", 2),
    (SUBGROUP_4_ROWS, "linear_affine_parts", 4),
    (SUBGROUP_GEMM, "linear_affine_parts", 8),
)
BY_GROUPS = (
    (SUBGROUP_GEMV, "linear_affine_few", 1),
    (SUBGROUP_2_ROWS, "linear_affine_few", 2),
    (SUBGROUP_4_ROWS, "linear_affine_few", 4),
    (SUBGROUP_GEMM, "linear_affine_subgroup", 8),
)


@extra_routes(AffineProduct)
def affine_candidates(product: AffineProduct) -> list[Candidate]:
    if not _has_whole_parts(product.weight):
        return in_order(product.candidate(*each, COLUMNS) for each in BY_GROUPS)
    return in_order(_by_parts(product, *each) for each in BY_PARTS)


def _by_parts(product: AffineProduct, kind: KernelKind, kernel: str, height: int) -> Candidate:
    weight = product.weight
    sizes: dict[str, Define] = {"PAIRS_PER_GROUP": weight.group // 32, "EIGHTS": height // 4}
    made = product.candidate(kind, kernel, height, COLUMNS, BITS=weight.bits, **sizes)
    return replace(made, dispatch=_with_all_outputs(made.dispatch))


def _has_whole_parts(weight: AffineWeights) -> bool:
    """Whether a row is whole pairs of parts of 16 codes, of one plane, and every pair has one scale."""
    one_plane = weight.bits in (4, 8) and weight.table is None and not weight.signed
    return one_plane and weight.group % 32 == 0 and weight.row_bytes % (2 * weight.bits) == 0


def _with_all_outputs(dispatch: Dispatch) -> Dispatch:
    """Use the text for three outputs for any number of them, so that it is compiled once.

    Outputs that the product does not have are bound to scratch memory, and nothing is written to them.
    """
    spare = {name: Scratch(name, 16) for name in NAMES if name not in dispatch.bindings}
    return replace(
        dispatch,
        bindings={**dispatch.bindings, **spare},
        defines={**dispatch.defines, "OUTPUTS": MAX_OUTPUTS},
    )
