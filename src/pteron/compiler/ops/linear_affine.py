"""Linear layers whose weights are stored as codes of 2 to 8 bits (see `affine`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pteron.compiler.ir.extensions import more_routes
from pteron.compiler.ir.rule import (
    SUBGROUP,
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
from pteron.compiler.ops.affine import AffineWeights
from pteron.compiler.ops.matmul import all_float32, check_bias
from pteron.compiler.ops.outputs import SideBySide
from pteron.compiler.ops.packed_affine import packed_candidates
from pteron.compiler.ops.products import (
    ANY,
    GEMM,
    GEMV,
    TEAM_FEW_PACKED_ROWS,
    TEAM_GEMV,
    Candidate,
    GemmShape,
    KernelKind,
    product_routes,
)
from pteron.compiler.ops.workgroups import tile_candidates

TEAM_STEPS = 32  # steps in depth that a lane of a team computes at a time


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
    defines = {"EXPERTS": False, "HAS_BIAS": bias is not None, **weight.defines, **sides.defines}
    product = AffineProduct(weight, GemmShape(rows, columns), Shared(bindings, params, defines))
    return product.routes(all_float32(x, bias, *outs))


@dataclass(frozen=True, slots=True)
class AffineProduct:
    weight: AffineWeights
    gemm: GemmShape
    shared: Shared

    def routes(self, is_float32: bool) -> list[Route]:
        any_form = Candidate(ANY, self.shared.dispatch("linear_affine_any", self.gemm.element_quads()))
        if not is_float32 or not has_whole_groups(self.weight):
            return product_routes(self.gemm, [any_form])
        own = [any_form] if self.weight.is_interleaved else self._by_columns()
        return product_routes(self.gemm, own, more_routes(self))

    def packed_candidates(
        self, norm: LiveTensor | None = None, eps: float = 0.0, code: str = ""
    ) -> list[Candidate]:
        return packed_candidates(self.weight, self.gemm, self.shared, norm, eps, code)

    def _by_columns(self) -> list[Candidate]:
        """Kernels that read each column of codes by itself."""
        candidates = [
            *self.packed_candidates(),
            self.candidate(GEMV, "linear_affine", 1, WORKGROUP),
            *self.tile_candidates(),
            self.candidate(GEMM, "linear_affine", 4, WORKGROUP),
        ]
        if suits_teams(self.weight):
            candidates += self.team_candidates()
        return candidates

    def team_candidates(self) -> list[Candidate]:
        teams = [self._teams(TEAM_GEMV, 1), self._teams(TEAM_FEW_PACKED_ROWS, 4)]
        return [*map(_in_subgroups, teams), *teams]

    def tile_candidates(self) -> list[Candidate]:
        product = self.shared.dispatch("linear_affine_tile", (1, 1, 1))
        return tile_candidates(product, self.gemm, depth=self.weight.depth, halved=True)

    def _teams(self, kind: KernelKind, height: int) -> Candidate:
        lanes = team_lanes(self.weight)
        return self.candidate(
            kind, "linear_affine_teams", height, lanes["COLUMNS"], **lanes, IN_SUBGROUP=False
        )

    def candidate(
        self, kind: KernelKind, kernel: str, height: int, width: int, **defines: Define
    ) -> Candidate:
        """A kernel whose workgroups compute `height` rows and `width` columns."""
        grid = self.gemm.workgroups(height, width)
        return Candidate(kind, self.shared.dispatch(kernel, grid, ROWS=height, ELEMENT="f32", **defines))


def _in_subgroups(teams: Candidate) -> Candidate:
    dispatch = replace(teams.dispatch, defines={**teams.dispatch.defines, "IN_SUBGROUP": True})
    return replace(teams, dispatch=dispatch, needs=(SUBGROUP,), variant="subgroup")


def team_lanes(weight: AffineWeights) -> dict[str, int]:
    """How the lanes of a workgroup are divided into teams, and the columns of the workgroup: two per team."""
    steps = -(-weight.depth // TEAM_STEPS)
    team = next((lanes for lanes in (8, 16, 32) if lanes >= steps), 32)
    return {"TEAM": team, "TURNS": -(-steps // team), "COLUMNS": 2 * WORKGROUP // team}


def has_whole_groups(weight: AffineWeights) -> bool:
    """Whether rows are whole words and whole groups, which all kernels but `linear_affine_any` need."""
    word = 8 if weight.bits == 8 else 4  # bytes that a kernel loads at once
    return weight.row_bytes % word == 0 and weight.group % 8 == 0 and weight.depth % weight.group == 0


def suits_teams(weight: AffineWeights) -> bool:
    """Whether a lane of a team can read four words at a time, and sixteen weights that share one scale."""
    return weight.depth % 32 == 0 and weight.group % 16 == 0 and weight.row_bytes % 16 == 0
