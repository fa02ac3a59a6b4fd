"""The modules behind the table. `inputs(*sizes)` makes the arguments of a call at those live sizes.

A module whose forward is a custom operator has a `reference` in plain torch; for all others torch
eager is the reference.
"""

from __future__ import annotations

import executorch.backends.vulkan.custom_ops_lib  # noqa: F401  registers et_vk
import torch
from executorch.examples.models.llama.rope import RotaryEmbedding, hf_apply_rotary_emb
from executorch.extension.llm.custom_ops import custom_ops  # noqa: F401  registers llama
from torch import Tensor, nn
from torchao.quantization.granularity import PerGroup
from torchao.quantization.quant_api import IntxWeightOnlyConfig, quantize_

WIDTH = 64


class Rows(nn.Module):
    """A module of one input [1, 1, S, 64]."""

    def inputs(self, s: int) -> tuple[Tensor, ...]:
        return (torch.randn(1, 1, s, WIDTH),)


# -- norms and residuals ------------------------------------------------------------------------


def rms(x: Tensor, weight: Tensor) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight


class RmsNorm(Rows):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        return rms(x, self.weight)


class RmsOfRms(RmsNorm):
    def forward(self, x: Tensor) -> Tensor:
        return rms(rms(x, self.weight), 2 - self.weight)


class RmsPlusX(RmsNorm):
    def forward(self, x: Tensor) -> Tensor:
        return rms(x, self.weight) + x


class RmsTimesX(RmsNorm):
    def forward(self, x: Tensor) -> Tensor:
        return rms(x, self.weight) * x


class Residual(Rows):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.sigmoid(torch.tanh(x))


class DeepResidual(RmsNorm):
    """x is used after three values of the same size: the memory plan must not reuse its buffer."""

    def forward(self, x: Tensor) -> Tensor:
        y = x + torch.sigmoid(torch.tanh(rms(x, self.weight)))
        return x * torch.sigmoid(y) + torch.tanh(y)


class LayerNorm(Rows):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.uniform_(self.norm.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x)


# -- matrix products ----------------------------------------------------------------------------


def four_bit(module: nn.Module, group: int = 32) -> nn.Module:
    config = IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(group))
    quantize_(module, config, lambda m, _: isinstance(m, nn.Linear | nn.Embedding))
    return module


class Linear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, 32)

    def inputs(self, m: int) -> tuple[Tensor, ...]:
        return (torch.randn(m, WIDTH),)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


class LinearQ4(Linear):
    def __init__(self) -> None:
        super().__init__()
        self.linear = four_bit(nn.Linear(WIDTH, 128, bias=False))


class GatedMlpQ4(nn.Module):
    """The feed-forward half of a Llama block, on rank 3: the exporter merges and splits dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up, self.down = (
            four_bit(nn.Linear(a, b, bias=False)) for a, b in ((WIDTH, 128), (WIDTH, 128), (128, WIDTH))
        )

    def inputs(self, s: int) -> tuple[Tensor, ...]:
        return (torch.randn(1, s, WIDTH),)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(nn.functional.silu(self.gate(x)) * self.up(x))


class BatchAndLength(nn.Module):
    """Two dynamic dimensions, which a linear merges into one."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def inputs(self, b: int, s: int) -> tuple[Tensor, ...]:
        return (torch.randn(b, s, WIDTH),)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * torch.sigmoid(x)


class BatchedMatmul(nn.Module):
    """Every dimension of the operands except the batch is dynamic, also the depth of the product."""

    def inputs(self, m: int, k: int) -> tuple[Tensor, ...]:
        return torch.randn(3, m, k), torch.randn(3, k, 20)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.bmm(a, b)


class PlainAttention(nn.Module):
    """Attention written out: permute, two products and a softmax over a dynamic dimension."""

    def inputs(self, s: int) -> tuple[Tensor, ...]:
        return (torch.randn(1, s, 4, 16),)

    def forward(self, x: Tensor) -> Tensor:
        heads = x.permute(0, 2, 1, 3)
        scores = torch.softmax(heads @ heads.transpose(2, 3) / 4, dim=-1)
        return (scores @ heads).permute(0, 2, 1, 3).reshape(1, x.shape[1], 64)


# -- attention with a cache ---------------------------------------------------------------------


class CachedAttention(nn.Module):
    """Grouped-query attention; caches are buffers, the position is an element of a tensor."""

    QUERY_HEADS, CACHE_HEADS, HEAD, CAPACITY = 8, 2, 16, 64

    def __init__(self) -> None:
        super().__init__()
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(1, self.CAPACITY, self.CACHE_HEADS, self.HEAD))

    def inputs(self, s: int, position: int) -> tuple[Tensor, ...]:
        q = torch.randn(1, s, self.QUERY_HEADS, self.HEAD)
        k, v = (torch.randn(1, s, self.CACHE_HEADS, self.HEAD) for _ in range(2))
        return q, k, v, torch.tensor([position])

    def forward(self, q: Tensor, k: Tensor, v: Tensor, input_pos: Tensor) -> Tensor:
        position = input_pos[0].item()
        torch._check_is_size(position)
        torch._check(position + q.shape[1] <= self.CAPACITY)
        return torch.ops.llama.sdpa_with_kv_cache(
            q, k, v, self.keys, self.values, position, q.shape[1], None, 0.0, True, None
        )

    def reference(self, q: Tensor, k: Tensor, v: Tensor, input_pos: Tensor) -> Tensor:
        start, end = int(input_pos), int(input_pos) + q.shape[1]
        self.keys[:, start:end] = k
        self.values[:, start:end] = v
        mask = torch.ones(q.shape[1], end, dtype=torch.bool).tril(start)
        q, k, v = (t.transpose(1, 2) for t in (q, self.keys[:, :end], self.values[:, :end]))
        out = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
        return out.transpose(1, 2)


class PositionBySize(CachedAttention):
    """The position is a size, so it is known already when the program is loaded."""

    def inputs(self, s: int, position: int) -> tuple[Tensor, ...]:
        return *super().inputs(s, position)[:3], torch.zeros(1, position)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, control: Tensor) -> Tensor:
        return torch.ops.llama.sdpa_with_kv_cache(
            q, k, v, self.keys, self.values, control.shape[1], q.shape[1], None, 0.0, True, None
        )

    def reference(self, q: Tensor, k: Tensor, v: Tensor, control: Tensor) -> Tensor:
        return super().reference(q, k, v, torch.tensor([control.shape[1]]))


class Rope(nn.Module):
    """Interleaved rotary embedding: two outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.rotary = RotaryEmbedding()

    def inputs(self, s: int) -> tuple[Tensor, ...]:
        angles = torch.rand(s, 32) * 6
        return torch.randn(1, s, 8, 64), torch.randn(1, s, 2, 64), angles.cos(), angles.sin()

    def forward(self, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        return self.rotary(q, k, cos, sin)


class RopeHf(nn.Module):
    """The rotate-half form. A position selects the first row of the frequency table."""

    ROWS = 32

    def inputs(self, s: int, position: int) -> tuple[Tensor, ...]:
        angles = (torch.arange(self.ROWS)[:, None] * torch.linspace(1, 0.01, 32)).repeat(1, 2)
        q, k = torch.randn(1, s, 4, 64), torch.randn(1, s, 2, 64)
        return q, k, angles.cos(), angles.sin(), torch.tensor([position])

    def forward(
        self, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, input_pos: Tensor
    ) -> tuple[Tensor, Tensor]:
        start = input_pos[0].item()
        torch._check_is_size(start)
        torch._check(start + q.shape[1] <= cos.shape[0])
        return hf_apply_rotary_emb(q, k, *(t.narrow(0, start, q.shape[1]) for t in (cos, sin)))


class EmbeddingQ4(nn.Module):
    ROWS = 64

    def __init__(self) -> None:
        super().__init__()
        self.table = four_bit(nn.Embedding(self.ROWS, WIDTH))

    def inputs(self, n: int) -> tuple[Tensor, ...]:
        return (torch.randint(self.ROWS, (n,)),)

    def forward(self, ids: Tensor) -> Tensor:
        return self.table(ids)


class Embedding(EmbeddingQ4):
    """Ids of two dimensions, and a computation on the looked-up rows."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(self.ROWS, 48)

    def inputs(self, n: int) -> tuple[Tensor, ...]:
        return (torch.randint(self.ROWS, (2, n)),)

    def forward(self, ids: Tensor) -> Tensor:
        return torch.tanh(self.table(ids))


# -- shapes -------------------------------------------------------------------------------------


class Matrix(nn.Module):
    """A module of one input [4, S, 16]."""

    def inputs(self, s: int) -> tuple[Tensor, ...]:
        return (torch.randn(4, s, 16),)


class PermuteMerged(Matrix):
    """After the permutation the dynamic dimension is merged with a static one: 4·S rows of 16."""

    def forward(self, x: Tensor) -> Tensor:
        return x.permute(1, 0, 2).reshape(x.shape[1] * 4, 16) * 2


class PermuteLast(Matrix):
    """The dynamic dimension becomes the last one, so rows may end inside a word."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x.permute(2, 0, 1))


class SliceToLive(nn.Module):
    """The live part of a constant table."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.randn(32, 24))

    def inputs(self, s: int) -> tuple[Tensor, ...]:
        return (torch.randn(s, 24),)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.table[: x.shape[0]]


class LastRow(Matrix):
    """x[:, -1] is another row at every size."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(x[:, -1])


class Cat(nn.Module):
    """Two dynamic dimensions are concatenated: the size of the result is their sum."""

    def inputs(self, a: int, b: int) -> tuple[Tensor, ...]:
        return torch.randn(3, a, 8), torch.randn(3, b, 8)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.cat([x, torch.tanh(y), x], dim=1)


class SizeOfIntermediate(Matrix):
    """A view whose size comes from the shape of an intermediate value."""

    def forward(self, x: Tensor) -> Tensor:
        doubled = torch.cat([x, x * 2], dim=1)
        return torch.tanh(doubled).reshape(4, doubled.shape[1] * 2, 8)


class Expand(nn.Module):
    def inputs(self, s: int) -> tuple[Tensor, ...]:
        return (torch.randn(1, s),)

    def forward(self, x: Tensor) -> Tensor:
        return x.expand(4, x.shape[1]).clone() * 2


class ExpandInferred(Expand):
    def forward(self, x: Tensor) -> Tensor:
        return x.expand(4, -1).clone()


class WhereCompare(nn.Module):
    """Booleans are bytes: odd live sizes end inside a word."""

    def inputs(self, s: int) -> tuple[Tensor, ...]:
        return torch.randn(3, s), torch.randn(3, s)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        larger = x > y
        return torch.where(larger, x, y * 2), torch.logical_and(larger, x < 0.5)


class SoftmaxOverLive(Matrix):
    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(x, dim=1)


class ReduceLive(Matrix):
    """Sums and maxima over the dynamic dimension: elements beyond the live size must not count."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x.sum(1), x.permute(0, 2, 1).amax(-1)


class IntArithmetic(nn.Module):
    """Integers above 2**24, which float32 cannot represent exactly."""

    def inputs(self, s: int) -> tuple[Tensor, ...]:
        a, b = (torch.randint(-(2**28), 2**28, (5, s), dtype=torch.int32) for _ in range(2))
        return a, b

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return a + b * 3 - a * a


class SizeAsOutput(Matrix):
    def forward(self, x: Tensor) -> tuple[Tensor, int]:
        return torch.tanh(x), x.shape[1] * 2


class SizeAsInput(Matrix):
    """An integer argument gives the number of rows that are used."""

    def inputs(self, s: int, n: int) -> tuple[Tensor | int, ...]:
        return torch.randn(s, 16), n

    def forward(self, x: Tensor, n: int) -> Tensor:
        torch._check(n >= 1)
        torch._check(n <= x.shape[0])
        return torch.tanh(x[:n]) * 2


# -- state --------------------------------------------------------------------------------------


class RunningSum(nn.Module):
    """A buffer to which each call adds."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.ones(16))

    def inputs(self, s: int) -> tuple[Tensor, ...]:
        return (torch.randn(s, 16),)

    def forward(self, x: Tensor) -> Tensor:
        self.total.add_(x.sum(0))
        return x + self.total
