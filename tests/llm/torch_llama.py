"""A llama as one would write it in torch, with a KV cache, from tensors under GGUF's names."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from executorch.extension.llm.custom_ops import custom_ops  # noqa: F401  registers torch.ops.llama
from torch import Tensor, nn

from tests.llm.tiny_models import Tiny

Tensors = dict[str, np.ndarray[Any, Any]]


class Llama(nn.Module):
    """forward(tokens [1, S], input_pos [1]): logits [1, vocabulary] of the last token."""

    def __init__(self, tiny: Tiny, tensors: Tensors) -> None:
        super().__init__()
        self.context = tiny.context
        self.token_embd = nn.Embedding.from_pretrained(torch.tensor(tensors["token_embd.weight"]))
        self.blk = nn.ModuleList(Block(tiny, tensors, f"blk.{n}.") for n in range(tiny.layers))
        self.output_norm = norm(tensors["output_norm.weight"], tiny.epsilon)
        self.output = linear(tensors["output.weight"])
        frequencies = tiny.base ** (-torch.arange(0, tiny.head_size, 2, dtype=torch.float64) / tiny.head_size)
        angles = torch.outer(torch.arange(tiny.context, dtype=torch.float64), frequencies)
        self.register_buffer("cos", angles.cos().float().repeat(1, 2))
        self.register_buffer("sin", angles.sin().float().repeat(1, 2))

    def forward(self, tokens: Tensor, input_pos: Tensor) -> Tensor:
        position, length = input_pos[0].item(), tokens.shape[1]
        torch._check_is_size(position)
        torch._check(position + length <= self.context)
        cos, sin = (t.narrow(0, position, length) for t in (self.cos, self.sin))
        x = self.token_embd(tokens)
        for block in self.blk:
            x = block(x, cos, sin, position)
        return self.output(self.output_norm(x[:, -1]))


class Block(nn.Module):
    def __init__(self, tiny: Tiny, tensors: Tensors, prefix: str) -> None:
        super().__init__()
        self.tiny = tiny
        for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
            weight = tensors[f"{prefix}{name}.weight"]
            rotated = name in ("attn_q", "attn_k")
            setattr(self, name, linear(halves(weight, tiny.head_size) if rotated else weight))
        self.attn_norm = norm(tensors[f"{prefix}attn_norm.weight"], tiny.epsilon)
        self.ffn_norm = norm(tensors[f"{prefix}ffn_norm.weight"], tiny.epsilon)
        for name in ("k_cache", "v_cache"):
            self.register_buffer(name, torch.zeros(1, tiny.context, tiny.kv_heads, tiny.head_size))

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, position: int) -> Tensor:
        length, h = x.shape[1], self.attn_norm(x)
        q, k, v = (
            projection(h).view(1, length, -1, self.tiny.head_size)
            for projection in (self.attn_q, self.attn_k, self.attn_v)
        )
        y = torch.ops.llama.sdpa_with_kv_cache(
            rotate(q, cos, sin),
            rotate(k, cos, sin),
            v,
            self.k_cache,
            self.v_cache,
            position,
            length,
            None,
            0.0,
            True,
            None,
        )
        x = x + self.attn_output(y.flatten(2))
        h = self.ffn_norm(x)
        return x + self.ffn_down(nn.functional.silu(self.ffn_gate(h)) * self.ffn_up(h))


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, dim=-1)
    return x * cos.unsqueeze(1) + torch.cat((-b, a), dim=-1) * sin.unsqueeze(1)


def halves(weight: np.ndarray[Any, Any], head_size: int) -> np.ndarray[Any, Any]:
    """llama files hold pairs of neighbours to rotate; here they are the halves of a head."""
    pairs = weight.reshape(-1, head_size // 2, 2, weight.shape[1])
    return pairs.swapaxes(1, 2).reshape(weight.shape)


def linear(weight: np.ndarray[Any, Any]) -> nn.Linear:
    made = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    made.weight = nn.Parameter(torch.tensor(weight))
    return made


def norm(weight: np.ndarray[Any, Any], epsilon: float) -> nn.RMSNorm:
    made = nn.RMSNorm(len(weight), epsilon)
    made.weight = nn.Parameter(torch.tensor(weight))
    return made
