"""Linear layers that read the same tensor, as one product with several outputs."""

from __future__ import annotations

from pteron.compiler.ir.rule import LiveTensor, Route, multiplies, op
from pteron.compiler.ops.affine import AffineWeights
from pteron.compiler.ops.linear_affine import product_affine
from pteron.compiler.ops.linear_int8 import int8_weights
from pteron.compiler.ops.linear_q4 import product_q4
from pteron.compiler.ops.matmul import linear_product


@op("pteron.linears_q4gsw", work=multiplies("x"))
def linears_q4gsw(
    x: LiveTensor,
    weights: LiveTensor,
    scales: LiveTensor,
    group_size: int,
    bias: LiveTensor | None,
    outs: tuple[LiveTensor, ...],
) -> list[Route]:
    return product_q4(x, weights, scales, group_size, bias, outs)


@op("pteron.linears_affine", work=multiplies("x"))
def linears_affine(
    x: LiveTensor,
    weights: LiveTensor,
    scales: LiveTensor,
    bits: int,
    group_size: int,
    zero: int,
    table: LiveTensor | None,
    bias: LiveTensor | None,
    outs: tuple[LiveTensor, ...],
) -> list[Route]:
    weight = AffineWeights.of_words(weights, scales, x.max_shape[-1], bits, group_size, zero, table)
    return product_affine(x, weight, bias, outs)


@op("pteron.linears_int8", work=multiplies("x"))
def linears_int8(
    x: LiveTensor,
    weights: LiveTensor,
    scales: LiveTensor,
    zeros: LiveTensor | None,
    group_size: int,
    bias: LiveTensor | None,
    outs: tuple[LiveTensor, ...],
) -> list[Route]:
    return product_affine(x, int8_weights(weights, scales, zeros, group_size), bias, outs)


@op("pteron.linears", work=multiplies("x"))
def linears(
    x: LiveTensor, weight: LiveTensor, bias: LiveTensor | None, outs: tuple[LiveTensor, ...]
) -> list[Route]:
    return linear_product(x, weight, bias, outs)
