"""Products of mixtures of experts: each row has its own matrix, which another tensor chooses."""

from __future__ import annotations

from collections.abc import Callable

from pteron.compiler.ir.integer_rules import indexes
from pteron.compiler.ir.rule import (
    GPU,
    WORKGROUP,
    Define,
    Dispatch,
    LiveArguments,
    LiveTensor,
    Number,
    Route,
    Shared,
    Work,
    check,
    describe,
    first_rows,
    numel,
    op,
    quads,
    rows_of,
    threads,
)
from pteron.compiler.ops.affine import AffineWeights
from pteron.compiler.ops.linear_affine import has_whole_groups, suits_teams, team_lanes
from pteron.compiler.ops.matmul import all_float32
from pteron.compiler.ops.outputs import SideBySide
from pteron.compiler.ops.products import GemmShape


def _work(matrices: str, *tables: str) -> Callable[[LiveArguments], Work]:
    """Of the weights, at most the matrices of all rows are read."""

    def work(call: LiveArguments) -> Work:
        out = call["out"]
        stored = call[matrices]
        one = 1 if stored.rank == 3 else out.shape[-1]
        rows = call["chosen"].numel * one
        parts = {name: first_rows(call[name], rows) for name in (matrices, *tables)}
        return Work(2 * out.numel * call["x"].shape[-1], parts)

    return work


def _rows(x: LiveTensor, chosen: LiveTensor, out: LiveTensor) -> dict[str, Number]:
    """The sizes of a product. x is [S, depth], or [S, n, depth] with a row for each chosen matrix."""
    check(
        x.rank in (2, 3) and chosen.rank == 2 and x.shape[:-1] in (chosen.shape[:1], chosen.shape),
        f"x {describe(x.shape)} does not fit the chosen experts {describe(chosen.shape)}",
    )
    columns = out.max_shape[-1]
    out.resize((*chosen.shape, columns))
    sharing = chosen.shape[1] if x.rank == 2 else 1
    return {"rows": chosen.numel, "columns": columns, "depth": x.shape[-1], "sharing": max(sharing, 1)}


@op("pteron.experts.default", work=_work("weights"), rows=rows_of("x", "chosen"), integers=indexes("chosen"))
def experts(x: LiveTensor, chosen: LiveTensor, weights: LiveTensor, out: LiveTensor) -> Dispatch:
    """x @ weights[chosen]^T: weights are [experts, columns, depth], and the result is [S, n, columns]."""
    params = _rows(x, chosen, out)
    check(
        weights.rank == 3 and weights.shape[1:] == (params["columns"], params["depth"]),
        f"weights {describe(weights.shape)} do not fit x {describe(x.shape)} and out {describe(out.shape)}",
    )
    bindings = {"x": x, "chosen": chosen, "weights": weights, "y": out}
    return Dispatch("experts", bindings, params, threads(quads(out.numel)), {"EXPERTS": True})


@op(
    "pteron.experts_affine.default",
    work=_work("weights", "scales"),
    rows=rows_of("x", "chosen"),
    integers=indexes("chosen"),
)
def experts_affine(
    x: LiveTensor,
    chosen: LiveTensor,
    weights: LiveTensor,
    scales: LiveTensor,
    bits: int,
    group_size: int,
    zero: int,
    table: LiveTensor | None,
    out: LiveTensor,
) -> list[Route]:
    """As `experts`, with coded weights: the rows of all matrices, one after the other."""
    sizes = _rows(x, chosen, out)
    weight = AffineWeights.of_words(weights, scales, x.max_shape[-1], bits, group_size, zero, table)
    check(x.shape[-1] == weight.depth, f"x has rows of {x.shape[-1]} elements, the weights {weight.depth}")
    check(
        weights.shape[0] % max(out.shape[-1], 1) == 0,
        f"{weights.shape[0]} rows of weights are not whole matrices of {out.shape[-1]} rows",
    )
    sides = SideBySide.of((out,))
    params: dict[str, Number] = {**sizes, **sides.params, **weight.params}
    defines: dict[str, Define] = {"EXPERTS": True, "HAS_BIAS": False, **weight.defines, **sides.defines}
    shared = Shared({"x": x, "chosen": chosen, **weight.bindings, **sides.bindings}, params, defines)
    gemm = GemmShape(numel(chosen.shape), out.shape[-1])
    if not all_float32(x, out) or not has_whole_groups(weight):
        return [Route("any", [shared.dispatch("linear_affine_any", gemm.element_quads())])]

    def route(name: str, kernel: str, width: int, target: str | None = None, **lanes: Define) -> Route:
        dispatch = shared.dispatch(kernel, gemm.workgroups(1, width), ROWS=1, ELEMENT="f32", **lanes)
        return Route(name, [dispatch], target=target)

    rows = route("rows", "linear_affine", WORKGROUP)
    if not suits_teams(weight):
        return [rows]
    lanes = team_lanes(weight)
    return [route("teams", "linear_affine_teams", lanes["COLUMNS"], GPU, **lanes, IN_SUBGROUP=False), rows]
