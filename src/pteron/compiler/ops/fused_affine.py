"""Linear layers with coded weights, and what comes before and after them, for GPUs.

The pass `fused_products` finds them. A team of lanes reads a whole row of x, so it can normalize it, too.
Tiles cannot: the norm of x is then a kernel of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from pteron.compiler.ir.rule import (
    Bound,
    Define,
    Dispatch,
    LiveArguments,
    LiveTensor,
    Number,
    Route,
    Scratch,
    Shared,
    Unused,
    Work,
    check,
    describe,
    numel,
    op,
)
from pteron.compiler.ops.affine import AffineWeights
from pteron.compiler.ops.chain import INPUT_NAMES, ChainStep, compose
from pteron.compiler.ops.linear_affine import AffineProduct, has_whole_groups, suits_teams
from pteron.compiler.ops.matmul import all_float32, check_bias
from pteron.compiler.ops.outputs import SideBySide
from pteron.compiler.ops.products import Candidate, GemmShape, product_routes
from pteron.compiler.ops.rows import rms_rows

_TYPES = "".join(f"alias {name}_t4 = vec4<f32>;\n" for name in (*INPUT_NAMES, "y"))


def _work(call: LiveArguments) -> Work:
    columns = sum(out.numel for out in call.outputs) * (2 if call["halves"] else 1)
    return Work(2 * columns * call["x"].shape[-1])


def fits(weight: AffineWeights) -> bool:
    """Whether the kernels of this operator can read these weights."""
    return has_whole_groups(weight) and suits_teams(weight) and not weight.is_interleaved


@op("pteron.fused_affine", work=_work)
def fused_affine(
    x: LiveTensor,
    norm: LiveTensor | None,
    eps: float,
    weights: LiveTensor,
    scales: LiveTensor,
    bits: int,
    group_size: int,
    zero: int,
    table: LiveTensor | None,
    bias: LiveTensor | None,
    steps: Unused,
    added: LiveTensor | None,
    halves: bool,
    outs: tuple[LiveTensor, ...],
) -> list[Route]:
    """steps(norm(x) @ W^T + bias, added). The columns go to one output, or to several of fixed width.

    norm: the factors of an RMS norm. steps: of an elementwise chain; none: the identity. If `halves`, its
    operands are the first and the second half of the columns.
    """
    for out in outs:
        out.resize((*x.shape[:-1], out.max_shape[-1]))
    weight = AffineWeights.of_words(weights, scales, x.max_shape[-1], bits, group_size, zero, table)
    sides = SideBySide.of(outs)
    columns = sides.columns * (2 if halves else 1)
    check(x.shape[-1] == weight.depth, f"x has rows of {x.shape[-1]} elements, the weights {weight.depth}")
    check(
        weight.rows >= columns,
        f"weights of shape {describe(weight.codes.shape)} do not fit {columns} columns",
    )
    check(fits(weight) and all_float32(x, norm, bias, added, *outs), "these operands cannot be fused")
    check(
        norm is None or norm.shape == (weight.depth,), "a norm must have a factor for each element of a row"
    )
    check(added is None or added.shape == outs[0].shape, "what is added must have the shape of the output")
    check_bias(bias, columns)
    named = {"bias": bias, "added": added}
    bindings: dict[str, Bound] = {"x": x, **weight.bindings, **sides.bindings}
    bindings |= {name: tensor for name, tensor in named.items() if tensor is not None}
    rows = numel(x.shape[:-1])
    params: dict[str, Number] = {"rows": rows, **sides.params, **weight.params, "columns": columns}
    listed = tuple(ChainStep(*step) for step in cast(Sequence[Sequence[Any]], steps))
    defines: dict[str, Define] = {
        **weight.defines,
        **sides.defines,
        "EXPERTS": False,
        "HAS_BIAS": bias is not None,
        "ADDED": added is not None,
        "HALVES": halves,
        "APPLIED": bool(listed),
    }
    product = AffineProduct(weight, GemmShape(rows, columns), Shared(bindings, params, defines))
    code = _TYPES + compose(listed) if listed else ""
    fused = Around(x, norm, eps, rows, code)
    return product_routes(
        product.gemm,
        [
            *map(fused.by_teams, product.team_candidates()),
            *product.packed_candidates(norm, eps, code),
            *map(fused.by_tiles, product.tile_candidates()),
        ],
    )


@dataclass(frozen=True, slots=True)
class Around:
    """What comes before a product, and the function of its results."""

    x: LiveTensor
    norm: LiveTensor | None
    eps: float
    rows: int
    code: str = ""

    def by_teams(self, candidate: Candidate) -> Candidate:
        dispatch = replace(candidate.dispatch, code=self.code)
        if self.norm is None:
            return replace(candidate, dispatch=dispatch)
        made = replace(
            dispatch,
            bindings={**dispatch.bindings, "norm": self.norm},
            params={**dispatch.params, "eps": self.eps},
            defines={**dispatch.defines, "NORMED": True},
        )
        return replace(candidate, dispatch=made)

    def by_tiles(self, candidate: Candidate) -> Candidate:
        dispatch = replace(candidate.dispatch, code=self.code)
        if self.norm is None:
            return replace(candidate, dispatch=dispatch)
        normed = Scratch("normed", max(16, self.x.tensor.max_nbytes))
        before: Dispatch = rms_rows(self.x, self.norm, self.eps, normed, self.rows).by_workgroups()
        bindings = {**dispatch.bindings, "x": normed}
        return replace(candidate, dispatch=replace(dispatch, bindings=bindings), before=before)
