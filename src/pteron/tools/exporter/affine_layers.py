"""Layers with 4-bit affine weights, as operators of Pteron: a weight is scale * code + minimum.

ExecuTorch has no such operators. The exporter writes them as kernel calls outside the delegate.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

BITS, PER_WORD = 4, 8
WEIGHT = "Tensor weights, Tensor scales, int bits, int group_size, int zero, Tensor? table"
SCHEMAS = {
    "linear_affine": f"Tensor x, {WEIGHT}, Tensor? bias",
    "embedding_affine": f"{WEIGHT}, Tensor indices",
}

LIBRARY = torch.library.Library("pteron", "FRAGMENT")
for _name, _arguments in SCHEMAS.items():
    LIBRARY.define(f"{_name}({_arguments}) -> Tensor")
    LIBRARY.define(f"{_name}.out({_arguments}, *, Tensor(a!) out) -> Tensor(a!)")


def linear_affine(
    x: Tensor,
    weights: Tensor,
    scales: Tensor,
    bits: int,
    group_size: int,
    zero: int,
    table: Tensor | None,
    bias: Tensor | None,
) -> Tensor:
    return functional.linear(x, decoded(weights, scales).to(x.dtype), bias)


def embedding_affine(
    weights: Tensor,
    scales: Tensor,
    bits: int,
    group_size: int,
    zero: int,
    table: Tensor | None,
    indices: Tensor,
) -> Tensor:
    return functional.embedding(indices, decoded(weights, scales))


for _function in (linear_affine, embedding_affine):
    LIBRARY.impl(_function.__name__, _function, "CompositeExplicitAutograd")


class AffineLinear(nn.Module):  # type: ignore[misc]
    def __init__(self, layer: nn.Linear, codes: tuple[Tensor, Tensor], group_size: int) -> None:
        super().__init__()
        self.words, self.scales = (nn.Parameter(part, requires_grad=False) for part in codes)
        self.bias = layer.bias
        self.group_size = group_size

    def forward(self, x: Tensor) -> Tensor:
        args = (self.words, self.scales, BITS, self.group_size, 0, None)
        y: Tensor = torch.ops.pteron.linear_affine(x, *args, self.bias)
        return y


class AffineEmbedding(nn.Module):  # type: ignore[misc]
    def __init__(self, codes: tuple[Tensor, Tensor], group_size: int) -> None:
        super().__init__()
        self.words, self.scales = (nn.Parameter(part, requires_grad=False) for part in codes)
        self.group_size = group_size

    def forward(self, indices: Tensor) -> Tensor:
        args = (self.words, self.scales, BITS, self.group_size, 0, None)
        y: Tensor = torch.ops.pteron.embedding_affine(*args, indices)
        return y


def encoded(weight: Tensor, group_size: int) -> tuple[Tensor, Tensor]:
    """Words [rows, width / 8], and scales [rows, groups, 2] with (scale, minimum) in float16.

    Codes count from the smallest weight of a group to the largest.
    """
    rows = len(weight)
    groups = weight.detach().float().reshape(rows, -1, group_size)
    lowest, highest = groups.amin(-1), groups.amax(-1)
    scales = torch.stack([(highest - lowest) / (2**BITS - 1), lowest], -1).half()
    step, start = scales.float().unsqueeze(-2).unbind(-1)
    codes = ((groups - start) / step.clamp(min=torch.finfo(torch.float32).tiny)).round()
    nibbles = codes.clamp(0, 2**BITS - 1).long().reshape(rows, -1, PER_WORD)
    words = (nibbles << (BITS * torch.arange(PER_WORD))).sum(-1)
    return words.to(torch.int32), scales


def decoded(words: Tensor, scales: Tensor) -> Tensor:
    """The weights that `encoded` has stored."""
    rows, groups, _ = scales.shape
    codes = (words.unsqueeze(-1) >> (BITS * torch.arange(PER_WORD, device=words.device))) & (2**BITS - 1)
    step, start = scales.float().unsqueeze(-2).unbind(-1)
    return (codes.reshape(rows, groups, -1) * step + start).reshape(rows, -1)
