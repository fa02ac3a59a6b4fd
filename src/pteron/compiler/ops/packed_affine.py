"""Linear layers with coded weights in 8-bit integers, for GPUs: `load(precision="int8")` permits them.

A kernel of its own rounds the activations first, in blocks with a factor each. An RMS norm before the product
is computed there, too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from pteron.compiler.ir.rule import Dispatch, LiveTensor, Scratch, Shared, fold
from pteron.compiler.ops.affine import AffineWeights
from pteron.compiler.ops.products import Candidate, GemmShape
from pteron.compiler.ops.workgroups import packed_tile_candidates


def packed_candidates(
    weight: AffineWeights,
    gemm: GemmShape,
    shared: Shared,
    norm: LiveTensor | None = None,
    eps: float = 0.0,
    code: str = "",
) -> list[Candidate]:
    """Empty if the weights do not permit it: codes must be numbers, in groups of whole blocks."""
    block = next((size for size in (32, 16) if weight.group % size == 0 and weight.depth % size == 0), None)
    if block is None or weight.table is not None or weight.is_interleaved:
        return []
    x = cast(LiveTensor, shared.bindings["x"])
    depth, words = weight.depth, weight.depth // 4 + weight.depth // block * 2
    rounded = Scratch("rounded", max(16, x.tensor.max_nbytes // depth * words))
    product = shared.dispatch("linear_affine_packed", (1, 1, 1), code, BLOCK=block)
    product = replace(product, bindings={**product.bindings, "x": rounded})
    before = _rounding(x, norm, eps, rounded, gemm.rows, depth, block)
    return [replace(each, before=before) for each in packed_tile_candidates(product, gemm, block, depth)]


def _rounding(
    x: LiveTensor, norm: LiveTensor | None, eps: float, rounded: Scratch, rows: int, depth: int, block: int
) -> Dispatch:
    lanes = next((n for n in (64, 128) if 4 * n >= depth), 256)
    return Dispatch(
        "rounded_rows",
        {"x": x, "y": rounded, **({"norm": norm} if norm else {})},
        {"rows": rows, "depth": depth, "eps": eps},
        fold(rows),
        {"BLOCK": block, "LANES": lanes, "TURNS": -(-depth // (4 * lanes)), "NORMED": norm is not None},
    )
