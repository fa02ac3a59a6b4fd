"""ExecuTorch's 4-bit linear layer. A weight is scale * (nibble - 8)."""

from __future__ import annotations

from collections.abc import Sequence

from pteron.compiler.ir.rule import LiveTensor, Route, check, describe, multiplies, op, rows_of
from pteron.compiler.ops.affine import AffineWeights, GroupScales, check_interleaved, is_interleaved
from pteron.compiler.ops.linear_affine import product_affine


@op("et_vk.linear_q4gsw.default", work=multiplies("x"), rows=rows_of("x", mixes=-1))
def linear_q4gsw(
    x: LiveTensor,
    weights: LiveTensor,
    scales: LiveTensor,
    group_size: int,
    bias: LiveTensor | None,
    out: LiveTensor,
) -> list[Route]:
    return product_q4(x, weights, scales, group_size, bias, (out,))


def product_q4(
    x: LiveTensor,
    weights: LiveTensor,
    scales: LiveTensor,
    group_size: int,
    bias: LiveTensor | None,
    outs: Sequence[LiveTensor],
) -> list[Route]:
    """W is [N, ceil(K/2)] bytes, with even k in the low nibble, or interleaved [N/4, K/16, 4, 8].

    Scales are [K/group, N] or larger.
    """
    depth, columns = x.max_shape[-1], sum(out.max_shape[-1] for out in outs)
    check_group_scales(scales, depth, group_size, columns)
    interleaved = is_interleaved(weights)
    if interleaved:
        check_interleaved(weights, depth, group_size, 8)
    else:
        check(weights.rank == 2, f"weights must have 2 dimensions, not shape {describe(weights.shape)}")
    packed = depth // 2 if interleaved else weights.shape[1]
    check(
        (depth + 1) // 2 <= packed,
        f"weights of shape {describe(weights.shape)} do not fit {columns} columns of {depth} elements",
    )
    columns_last = GroupScales(scales, steps=(1, scales.shape[1]))
    weight = AffineWeights(weights, columns_last, depth, 4, group_size, packed, zero=8)
    return product_affine(x, weight, bias, outs)


def check_group_scales(scales: LiveTensor, depth: int, group_size: int, columns: int) -> None:
    """Scales must be [groups of the depth, columns] or larger."""
    check(group_size > 0, f"group_size must be positive, not {group_size}")
    groups = -(-depth // group_size)
    check(
        scales.rank == 2 and scales.shape[0] >= groups and scales.shape[1] >= columns,
        f"scales have shape {describe(scales.shape)}, but {groups} groups of {columns} columns are needed",
    )
