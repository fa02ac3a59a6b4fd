"""Tiny random models of the llama family: written as GGUF, and run by torch for comparison."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from pteron.pte import ProgramFile, VkDelegate, read_delegate

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
WORDS = ["Ġthe", "Ġcat", "Ġsat", "hello", "Ġworld"]
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"


@dataclass(frozen=True)
class Tiny:
    """What a model is. Sizes are the smallest that divide into groups of 32."""

    architecture: str
    layers: int = 3
    width: int = 64
    hidden: int = 96
    heads: int = 4
    kv_heads: int = 2
    head_size: int = 16
    context: int = 64
    base: float = 10000.0
    epsilon: float = 1e-5
    bias: bool = False
    head_norms: bool = False
    tied: bool = True
    slower: bool = False  # divide the rotary frequencies, as Llama 3.1 does


LLAMA = Tiny("llama")
MODELS = {
    "llama": LLAMA,
    "llama, untied, slower rotation": Tiny("llama", tied=False, slower=True, kv_heads=4),
    "qwen2": Tiny("qwen2", bias=True, base=1e6, epsilon=1e-6),
    "qwen3": Tiny("qwen3", head_norms=True, head_size=32, base=1e6, epsilon=1e-6),
}


def byte_alphabet() -> list[str]:
    """The 256 characters by which byte-level vocabularies write bytes."""
    from tokenizers import pre_tokenizers

    return sorted(pre_tokenizers.ByteLevel.alphabet())


def merged_vocabulary() -> tuple[list[str], list[str]]:
    """(tokens, merges) that reach every word of WORDS, left to right."""
    tokens, merges = [*SPECIAL, *byte_alphabet()], []
    for word in WORDS:
        for end in range(2, len(word) + 1):
            if word[:end] not in tokens:
                tokens.append(word[:end])
                merges.append(f"{word[: end - 1]} {word[end - 1]}")
    return tokens, merges


TOKENS, MERGES = merged_vocabulary()


def weights(tiny: Tiny, seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    """Random tensors under GGUF's names."""
    random = np.random.default_rng(seed)

    def matrix(rows: int, width: int) -> np.ndarray[Any, Any]:
        return (random.standard_normal((rows, width)) / np.sqrt(width)).astype(np.float32)

    def norm(width: int) -> np.ndarray[Any, Any]:
        return (1 + 0.2 * random.standard_normal(width)).astype(np.float32)

    queries, keys = tiny.heads * tiny.head_size, tiny.kv_heads * tiny.head_size
    made = {"token_embd.weight": matrix(len(TOKENS), tiny.width) * 3, "output_norm.weight": norm(tiny.width)}
    if not tiny.tied:
        made["output.weight"] = matrix(len(TOKENS), tiny.width)
    if tiny.slower:
        made["rope_freqs.weight"] = np.linspace(1, 8, tiny.head_size // 2, dtype=np.float32)
    for number in range(tiny.layers):
        block = f"blk.{number}."
        made[f"{block}attn_norm.weight"], made[f"{block}ffn_norm.weight"] = norm(tiny.width), norm(tiny.width)
        linears = {
            "attn_q": (queries, tiny.width),
            "attn_k": (keys, tiny.width),
            "attn_v": (keys, tiny.width),
            "attn_output": (tiny.width, queries),
            "ffn_gate": (tiny.hidden, tiny.width),
            "ffn_up": (tiny.hidden, tiny.width),
            "ffn_down": (tiny.width, tiny.hidden),
        }
        for name, shape in linears.items():
            made[f"{block}{name}.weight"] = matrix(*shape)
        if tiny.bias:
            for name in ("attn_q", "attn_k", "attn_v"):
                made[f"{block}{name}.bias"] = matrix(1, linears[name][0])[0]
        if tiny.head_norms:
            made[f"{block}attn_q_norm.weight"] = norm(tiny.head_size)
            made[f"{block}attn_k_norm.weight"] = norm(tiny.head_size)
    return made


def write_gguf(
    path: Path,
    tiny: Tiny,
    tensors: Mapping[str, Any] | None = None,
    *,
    architecture: str | None = None,
    tool_template: str | None = None,
) -> Path:
    """A file of arrays, or of pairs of stored blocks and their type."""
    name = architecture or tiny.architecture
    out = gguf.GGUFWriter(path, name)
    out.add_name(f"tiny {name}")
    out.add_block_count(tiny.layers)
    out.add_context_length(tiny.context)
    out.add_embedding_length(tiny.width)
    out.add_feed_forward_length(tiny.hidden)
    out.add_head_count(tiny.heads)
    out.add_head_count_kv(tiny.kv_heads)
    out.add_key_length(tiny.head_size)
    out.add_value_length(tiny.head_size)
    out.add_layer_norm_rms_eps(tiny.epsilon)
    out.add_rope_freq_base(tiny.base)
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("smollm")
    out.add_token_list(TOKENS)
    out.add_token_types([3] * len(SPECIAL) + [1] * (len(TOKENS) - len(SPECIAL)))
    out.add_token_merges(MERGES)
    out.add_bos_token_id(1)
    out.add_eos_token_id(2)
    out.add_add_bos_token(False)
    templates = {"default": TEMPLATE} | ({"tool_use": tool_template} if tool_template else {})
    out.add_chat_template([{"name": name, "template": text} for name, text in templates.items()])
    for key, value in (weights(tiny) if tensors is None else tensors).items():
        data, kind = value if isinstance(value, tuple) else (value, None)
        out.add_tensor(key, data, raw_dtype=kind)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    return path


class Reference:
    """The model in torch, without caches, from tensors under GGUF's names and in GGUF's order of rows."""

    def __init__(self, tiny: Tiny, tensors: dict[str, np.ndarray[Any, Any]]) -> None:
        self.tiny = tiny
        self.tensors = {name: torch.tensor(t) for name, t in tensors.items()}

    def logits(self, tokens: list[int]) -> Tensor:
        """Of every position: [S, vocabulary]."""
        x = self.tensors["token_embd.weight"][torch.tensor(tokens)]
        for number in range(self.tiny.layers):
            block = f"blk.{number}."
            x = x + self._attention(self._norm(x, f"{block}attn_norm"), block)
            h = self._norm(x, f"{block}ffn_norm")
            hidden = functional.silu(self._linear(h, f"{block}ffn_gate")) * self._linear(h, f"{block}ffn_up")
            x = x + self._linear(hidden, f"{block}ffn_down")
        head = self.tensors.get("output.weight", self.tensors["token_embd.weight"])
        return self._norm(x, "output_norm") @ head.T

    def _linear(self, x: Tensor, name: str) -> Tensor:
        return functional.linear(x, self.tensors[f"{name}.weight"], self.tensors.get(f"{name}.bias"))

    def _norm(self, x: Tensor, name: str) -> Tensor:
        return functional.rms_norm(x, x.shape[-1:], self.tensors[f"{name}.weight"], self.tiny.epsilon)

    def _attention(self, x: Tensor, block: str) -> Tensor:
        tiny = self.tiny
        q = self._linear(x, f"{block}attn_q").view(len(x), tiny.heads, tiny.head_size)
        k = self._linear(x, f"{block}attn_k").view(len(x), tiny.kv_heads, tiny.head_size)
        v = self._linear(x, f"{block}attn_v").view(len(x), tiny.kv_heads, tiny.head_size)
        if tiny.head_norms:
            q, k = self._norm(q, f"{block}attn_q_norm"), self._norm(k, f"{block}attn_k_norm")
        q, k, v = (t.transpose(0, 1)[None] for t in (self._rotate(q), self._rotate(k), v))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self._linear(y[0].transpose(0, 1).reshape(len(x), -1), f"{block}attn_output")

    def _rotate(self, x: Tensor) -> Tensor:
        """llama files hold pairs of neighbours to rotate, the others halves."""
        size = self.tiny.head_size
        frequencies = self.tiny.base ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
        if "rope_freqs.weight" in self.tensors:
            frequencies = frequencies / self.tensors["rope_freqs.weight"]
        angles = torch.outer(torch.arange(len(x), dtype=torch.float64), frequencies)
        cos, sin = angles.cos().float()[:, None], angles.sin().float()[:, None]
        if self.tiny.architecture == "llama":
            a, b = x[..., 0::2], x[..., 1::2]
            return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)
        a, b = x[..., : size // 2], x[..., size // 2 :]
        return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


def delegate_of(path: Path) -> tuple[ProgramFile, VkDelegate]:
    file = ProgramFile.open(path)
    return file, read_delegate(file.delegate_blob(file.plan("forward").delegates[0]))
