"""Small whole models of common kinds, with the shapes for the export and for the calls."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.nn import functional


@dataclass(frozen=True)
class Model:
    """A factory of a model, its inputs at a live size, and the live sizes of the calls, the largest first."""

    make: Callable[[], nn.Module]
    inputs: Callable[[Any], tuple[Tensor, ...]]
    sizes: tuple[Any, ...]
    dynamic_shapes: Any = None


def tokens(*shape: int) -> Tensor:
    return torch.randint(0, 60, shape)


def multilayer_perceptron() -> nn.Module:
    return nn.Sequential(
        nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 18), nn.GELU(), nn.Linear(18, 7), nn.Softmax(-1)
    )


class ConvNet(nn.Module):
    """Convolutions with batch norm, one depthwise-separable, then pooled to a vector."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU6()
        )
        self.depthwise = nn.Sequential(
            nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.BatchNorm2d(8), nn.Hardswish()
        )
        self.pointwise = nn.Sequential(nn.Conv2d(8, 12, 1), nn.BatchNorm2d(12), nn.SiLU())
        self.head = nn.Linear(12, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = self.pointwise(x + self.depthwise(x))
        x = functional.max_pool2d(x, 2)
        return self.head(x.mean((2, 3)))


def conv_net() -> nn.Module:
    """A conv net whose batch norms have statistics other than 0 and 1."""
    model = ConvNet().train()
    with torch.no_grad():
        for _ in range(3):
            model(torch.randn(4, 3, 16, 16) * 2 + 1)
    return model


class Recurrent(nn.Module):
    """A recurrent layer of two levels. The outputs are all steps and the last hidden state."""

    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.layer = kind(6, 8, num_layers=2, batch_first=True)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        steps, hidden = self.layer(x)
        return steps, hidden[0] if isinstance(hidden, tuple) else hidden


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads = heads
        self.causal = causal
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        batch, length, width = x.shape
        split = (batch, length, self.heads, width // self.heads)
        q, k, v = (part.reshape(split).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=self.causal)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    """A transformer block with norms before its layers, as in ViT and GPT."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, causal)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(approximate="tanh"), nn.Linear(2 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


def transformer_encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, activation="gelu")
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


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


def bert_inputs(length: int) -> tuple[Tensor, Tensor]:
    """Two sentences, the second of which is shorter and padded."""
    mask = torch.ones(2, length, dtype=torch.int64)
    mask[1, max(1, length // 2) :] = 0
    return tokens(2, length), mask


class VisionTransformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 4, stride=4)
        self.first = nn.Parameter(torch.randn(1, 1, 16))
        self.places = nn.Parameter(torch.randn(1, 17, 16))
        self.blocks = nn.Sequential(Block(16, 2, False), Block(16, 2, False))
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(x.shape[0], -1, -1), x], 1) + self.places
        return self.head(self.norm(self.blocks(x))[:, 0])


class Gpt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(60, 16), nn.Embedding(24, 16)
        self.blocks = nn.Sequential(Block(16, 2, True), Block(16, 2, True))
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 60, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        return self.head(self.norm(self.blocks(x)))


# An exporter takes two sizes that are equal in its example for one: the largest live size is like no other.


def rows(maximum: int) -> Dim:
    return Dim("rows", min=1, max=maximum)


def length(maximum: int) -> Dim:
    return Dim("length", min=2, max=maximum)


MODELS = {
    "mlp": Model(multilayer_perceptron, lambda n: (torch.randn(n, 10),), (9, 1, 4, 7, 2), ({0: rows(9)},)),
    "conv net": Model(conv_net, lambda n: (torch.randn(1, 3, n, n),), (24,)),
    "conv net, batched": Model(
        conv_net, lambda n: (torch.randn(n, 3, 16, 16),), (5, 1, 3, 2), ({0: rows(5)},)
    ),
    "lstm": Model(lambda: Recurrent(nn.LSTM), lambda n: (torch.randn(n, 4, 6),), (5, 1, 3), ({0: rows(5)},)),
    # ExecuTorch fixes the batch of these two when it lowers them, whatever `dynamic_shapes` says.
    "gru": Model(lambda: Recurrent(nn.GRU), lambda n: (torch.randn(n, 4, 6),), (5,)),
    "vit": Model(VisionTransformer, lambda n: (torch.randn(n, 3, 16, 16),), (2,)),
    "transformer encoder": Model(
        transformer_encoder, lambda n: (torch.randn(2, n, 16),), (12, 3, 7, 2), ({1: length(12)},)
    ),
    "bert": Model(
        lambda: Bert(60, 24, 16, 2, 2, 32), bert_inputs, (12, 5, 2, 9), ({1: (n := length(12))}, {1: n})
    ),
    "gpt": Model(Gpt, lambda n: (tokens(1, n),), (16, 4, 11, 2), ({1: length(16)},)),
}
