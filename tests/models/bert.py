"""An encoder as in BERT, and its dynamic length."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.nn import functional


class Bert(nn.Module):
    """An encoder as in BERT: three embeddings, norms after the layers, a padding mask, and mean pooling."""

    def __init__(
        self, vocabulary: int, positions: int, width: int, heads: int, depth: int, inner: int
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(positions, width)
        self.kinds = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.layers = nn.ModuleList(BertLayer(width, heads, inner) for _ in range(depth))

    def forward(self, ids: Tensor, attention_mask: Tensor) -> Tensor:
        places = torch.arange(ids.shape[1]).unsqueeze(0)
        x = self.norm(self.words(ids) + self.positions(places) + self.kinds(torch.zeros_like(ids)))
        hidden = (1.0 - attention_mask[:, None, None, :].to(x.dtype)) * -1e9
        for layer in self.layers:
            x = layer(x, hidden)
        weights = attention_mask.unsqueeze(-1).to(x.dtype)
        pooled = (x * weights).sum(1) / weights.sum(1).clamp(min=1e-9)
        return functional.normalize(pooled, dim=1)


class BertLayer(nn.Module):
    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out, self.up, self.down = (
            nn.Linear(width, width),
            nn.Linear(width, inner),
            nn.Linear(inner, width),
        )
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-12), nn.LayerNorm(width, eps=1e-12)

    def forward(self, x: Tensor, hidden: Tensor) -> Tensor:
        batch, length, width = x.shape
        split = (batch, length, self.heads, width // self.heads)
        q, k, v = (f(x).view(split).transpose(1, 2) for f in (self.query, self.key, self.value))
        scores = q @ k.transpose(-1, -2) / math.sqrt(width // self.heads) + hidden
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, width)
        x = self.norm1(x + self.out(mixed))
        return self.norm2(x + self.down(functional.gelu(self.up(x))))


def length(maximum: int) -> Dim:
    return Dim("length", min=2, max=maximum)
