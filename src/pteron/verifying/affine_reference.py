"""Layers with coded weights, in plain torch. `pteron.ops.affine` describes the codes and their scales.

torch has no such operators. They are in programs that `pteron convert` made from GGUF files.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

PLANES = (8, 4, 2, 1)  # bits


def linear_affine(
    x: Tensor,
    words: Tensor,
    scales: Tensor,
    bits: int,
    group: int,
    zero: int,
    table: Tensor | None,
    bias: Tensor | None,
) -> Tensor:
    weight = _decoded(words, scales, x.shape[-1], bits, group, zero, table)
    product = x.double() @ weight.T
    return (product if bias is None else product + bias).float()


def embedding_affine(
    words: Tensor,
    scales: Tensor,
    bits: int,
    group: int,
    zero: int,
    table: Tensor | None,
    indices: Tensor,
    *,
    width: int,
) -> Tensor:
    rows = indices.reshape(-1)
    found = _decoded(words[rows], scales[rows], width, bits, group, zero, table)
    return found.reshape(*indices.shape, width).float()


def _decoded(
    words: Tensor, scales: Tensor, depth: int, bits: int, group: int, zero: int, table: Tensor | None
) -> Tensor:
    """The weights [rows, depth] as float64."""
    codes = _codes(words, depth, bits)
    steps, minima = (_spread(part, group, depth) for part in _lines(scales, -(-depth // group)))
    if minima is not None:
        return codes * steps + minima
    return (codes - zero if table is None else table.double()[codes]) * steps


def _codes(words: Tensor, depth: int, bits: int) -> Tensor:
    """The codes of all planes. Words are int64 here, and only their lower 32 bits count."""
    codes = torch.zeros(len(words), depth, dtype=torch.int64)
    place = below = 0
    for width in PLANES:
        if bits & width:
            count = -(-depth * width // 32)
            shifts = torch.arange(0, 32, width)
            parts = (words[:, place : place + count, None] >> shifts) & ((1 << width) - 1)
            codes |= parts.reshape(len(words), -1)[:, :depth] << below
            place, below = place + count, below + width
    return codes


def _lines(scales: Tensor, groups: int) -> tuple[Tensor, Tensor | None]:
    """The scale and the minimum of each group. None: without minima."""
    if scales.is_floating_point():
        scales = scales.double()[:, :groups]
        return (scales[..., 0], scales[..., 1]) if scales.ndim == 3 else (scales, None)
    per_block = groups // scales.shape[1]
    words = scales.to(torch.int32)
    if scales.shape[2] == 1 + per_block // 4:
        return _by_factor(words[..., :1], words[..., 1:]), None
    levels = words[..., 2:].contiguous().view(torch.int8)
    return _by_factor(words[..., :1], levels[..., ::2]), _by_factor(words[..., 1:2], levels[..., 1::2])


def _by_factor(factor: Tensor, levels: Tensor) -> Tensor:
    """Levels [rows, blocks, groups of a block] times the factor of their block, as [rows, groups]."""
    levels = levels.contiguous().view(torch.int8)
    return (factor.contiguous().view(torch.float32).double() * levels).flatten(1)


def _spread(of_groups: Tensor | None, group: int, depth: int) -> Any:
    return None if of_groups is None else of_groups.repeat_interleave(group, 1)[:, :depth]


FUNCTIONS: dict[str, Callable[..., Any]] = {"pteron.linear_affine.default": linear_affine}
# These are also told the last size of their output.
WITH_WIDTH: dict[str, Callable[..., Any]] = {"pteron.embedding_affine.default": embedding_affine}
