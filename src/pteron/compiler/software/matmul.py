"""Products of matrices of floats."""

from __future__ import annotations

from dataclasses import replace

from pteron.compiler.ir.extensions import extra_routes
from pteron.compiler.ir.rule import Define, numel
from pteron.compiler.ops.matmul import Product
from pteron.compiler.ops.products import Candidate, GemmShape, KernelKind
from pteron.compiler.software.kinds import (
    LANES,
    SUBGROUP_8_ROWS,
    SUBGROUP_32_PLUS_8,
    SUBGROUP_32_PLUS_16,
    SUBGROUP_32_ROWS,
    SUBGROUP_GEMM,
    SUBGROUP_GEMV,
    in_order,
)

ENOUGH_ELEMENTS = 2**15  # of a weight


@extra_routes(Product)
def product_candidates(product: Product) -> list[Candidate]:
    """If the shape of b never changes, only the kernels that fit it."""
    if not product.has_usual_dtypes:
        return []
    if not product.b.is_fixed:
        return in_order([*_whole(product, product.is_whole), *_ragged(product)])
    return in_order(_whole(product) if product.is_whole else _ragged(product))


def _whole(product: Product, when: bool | None = None) -> list[Candidate]:
    """For rows that are whole quads."""
    heights = [(SUBGROUP_GEMV, 1), (SUBGROUP_8_ROWS, 8), (SUBGROUP_GEMM, 16)]
    if _most_rows(product) > 16:
        heights.append((SUBGROUP_32_ROWS, 32))
    candidates = [_candidate(product, kind, height, when) for kind, height in heights]
    if product.transposed and _most_rows(product) > 32 and _is_worth_two_dispatches(product):
        candidates += [
            _in_two_parts(product, SUBGROUP_32_PLUS_8, 8, when),
            _in_two_parts(product, SUBGROUP_32_PLUS_16, 16, when),
        ]
    return candidates


def _ragged(product: Product) -> list[Candidate]:
    """For rows of any length. They load single elements, which is slower."""
    candidates = [
        _candidate(product, SUBGROUP_GEMV, 1, ragged=True),
        _candidate(product, SUBGROUP_GEMM, 16, ragged=True),
    ]
    return [replace(candidate, variant="ragged") for candidate in candidates]


def _candidate(
    product: Product, kind: KernelKind, height: int, when: bool | None = None, ragged: bool = False
) -> Candidate:
    added = product.added
    bias = added is not None and added.c.is_fixed and added.strides == (0, 0, 1) and added.c.numel % 4 == 0
    defines: dict[str, Define] = {"BIAS": bias, "ROWS": height, "EIGHTS": height // 8, "LANES": LANES}
    defines |= {"ALONE": height == 1, "RAGGED": ragged}
    kernel = "matmul_subgroup"
    if _stores_quads(product) and not ragged:
        kernel = "matmul_subgroup_quads"
    return product.candidate(kind, kernel, product.gemm.workgroups(height, 4 * LANES), when, **defines)


def _in_two_parts(product: Product, kind: KernelKind, height: int, when: bool | None) -> Candidate:
    """Tiles of 32 rows for all rows that fill them, and one tile of `height` rows for the others."""
    batch, rows, columns, depth = product.sizes
    tall = rows // 32 * 32
    first = _candidate(replace(product, sizes=(batch, tall, columns, depth)), SUBGROUP_32_ROWS, 32)
    last = _candidate(product, kind, height).dispatch
    grid = GemmShape(rows - tall, columns).workgroups(height, 4 * LANES)
    last = replace(last, params={**last.params, "first": tall}, grid=grid)
    return Candidate(kind, last, when, before=first.dispatch)


def _stores_quads(product: Product) -> bool:
    """Whether the rows of every output are whole quads, at every live shape."""
    return product.b.is_fixed and all(out.max_shape[-1] % 4 == 0 for out in product.outs)


def _is_worth_two_dispatches(product: Product) -> bool:
    """Whether eight rows of the product take longer than a dispatch."""
    *_, columns, depth = product.sizes
    return columns * depth >= ENOUGH_ELEMENTS


def _most_rows(product: Product) -> int:
    """The rows of a matrix at the largest shape."""
    most = product.a.max_shape
    return numel(most[:-1]) if product.transposed else most[-2]
