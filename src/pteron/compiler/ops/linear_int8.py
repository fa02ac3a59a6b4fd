"""Linear layers and embeddings over int8 weights. A weight is scale * (code - zero point), by groups."""

from __future__ import annotations

from dataclasses import replace

from pteron.compiler.ir.integer_rules import indexes
from pteron.compiler.ir.rule import (
    Dispatch,
    DType,
    LiveTensor,
    Route,
    Unused,
    check,
    describe,
    looked_up,
    looks_up,
    multiplies,
    op,
    rows_of,
)
from pteron.compiler.ops.affine import AffineWeights, GroupScales, look_up
from pteron.compiler.ops.linear_affine import product_affine


@op("pteron.linear_int8", work=multiplies("x"), rows=rows_of("x", mixes=-1))
def linear_int8(
    x: LiveTensor,
    weights: LiveTensor,
    scales: LiveTensor,
    zeros: LiveTensor | None,
    group_size: int,
    bias: LiveTensor | None,
    out: LiveTensor,
) -> list[Route]:
    return product_affine(x, int8_weights(weights, scales, zeros, group_size), bias, (out,))


@op("quantized_decomposed.mixed_linear.default", work=multiplies("x"), rows=rows_of("x", mixes=-1))
def mixed_linear(
    x: LiveTensor, weights: LiveTensor, scales: LiveTensor, zeros: Unused, dtype: Unused, out: LiveTensor
) -> list[Route]:
    """Weights [rows, depth] with scales [rows] or [rows, groups]. Zero points are not read, as there."""
    check(weights.rank == 2, f"weights must be [rows, depth], not {describe(weights.shape)}")
    rows, depth = weights.shape
    groups = scales.shape[1] if scales.rank == 2 else 1
    check(
        scales.rank in (1, 2) and scales.shape[0] == rows and groups > 0 and scales.dtype is DType.float32,
        f"scales must be float32 [{rows}] or [{rows}, groups], not {scales.dtype} {describe(scales.shape)}",
    )
    group_size = max(-(-depth // groups), 1)
    codes = AffineWeights(
        weights, GroupScales(scales, (groups, 1), False), depth, 8, group_size, depth, signed=True
    )
    return product_affine(x, codes, None, (out,))


@op(
    "pteron.embedding_int8",
    work=looks_up("weights", "scales", by="indices"),
    rows=looked_up("indices"),
    integers=indexes("indices"),
)
def embedding_int8(
    weights: LiveTensor,
    scales: LiveTensor,
    zeros: LiveTensor | None,
    group_size: int,
    indices: LiveTensor,
    out: LiveTensor,
) -> Dispatch:
    return look_up(int8_weights(weights, scales, zeros, group_size), indices, out)


def int8_weights(
    weights: LiveTensor, scales: LiveTensor, zeros: LiveTensor | None, group_size: int
) -> AffineWeights:
    """Codes [rows, depth], with scales and zero points [rows, groups]."""
    check(
        weights.rank == 2 and weights.dtype is DType.int8,
        f"weights must be int8 [rows, depth], not {weights.dtype} {describe(weights.shape)}",
    )
    check(group_size > 0, f"group_size must be positive, not {group_size}")
    rows, depth = weights.shape
    groups = -(-depth // group_size)
    check(
        zeros is None or zeros.shape == (rows, groups),
        f"zero points must be [{rows}, {groups}], not {describe(zeros.shape if zeros else ())}",
    )
    form = replace(GroupScales.of_rows(scales, rows, groups), zeros=zeros)
    return AffineWeights(weights, form, depth, 8, group_size, depth, signed=True)
