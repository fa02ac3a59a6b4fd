"""A llama-family model in numpy, in float32, from a file's own numbers: what every conversion is measured by.

Slow, and therefore plain: it reads each tensor when it comes to it, and knows no cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from pteron.llm.gguf.config import Config
from pteron.llm.gguf.quantize import Floats
from pteron.llm.gguf.rotary import halves_from_pairs, rotation_tables
from pteron.llm.gguf.source import GgufFile

# Hears the inputs [S, width] of linear layers, and the names of those that read them.
Observer = Callable[[Floats, Sequence[str]], None]


class Reference:
    """One pass of the model over some tokens."""

    def __init__(self, config: Config, file: GgufFile, observe: Observer | None = None) -> None:
        self.config = config
        self.file = file
        self._observe = observe or (lambda x, names: None)

    def hidden(self, tokens: Sequence[int], on_layer: Callable[[int], None] | None = None) -> Floats:
        """What the output head reads at every position: [S, width]."""
        slower = self.file.read("rope_freqs.weight") if "rope_freqs.weight" in self.file else None
        cos, sin = rotation_tables(self.config, len(tokens), slower)
        self._cos, self._sin = cos[:, None], sin[:, None]
        x = self.file.read("token_embd.weight", np.array(tokens))
        for number in range(self.config.layers):
            block = f"blk.{number}."
            x = x + self._attention(self._norm(x, f"{block}attn_norm"), block)
            x = x + self._feed_forward(self._norm(x, f"{block}ffn_norm"), block)
            if on_layer:
                on_layer(number)
        x = self._norm(x, "output_norm")
        self._observe(x, [self.head])
        return x

    def logits(self, tokens: Sequence[int], on_layer: Callable[[int], None] | None = None) -> Floats:
        """Of every position: [S, vocabulary]."""
        return self._linear(self.hidden(tokens, on_layer), self.head)

    @property
    def head(self) -> str:
        return "output" if "output.weight" in self.file else "token_embd"

    def _linear(self, x: Floats, name: str) -> Floats:
        y: Floats = x @ self.file.read(f"{name}.weight").T
        if f"{name}.bias" in self.file:
            y += self.file.read(f"{name}.bias")
        return y

    def _norm(self, x: Floats, name: str) -> Floats:
        power = np.square(x).mean(axis=-1, keepdims=True)
        y: Floats = x / np.sqrt(power + np.float32(self.config.epsilon)) * self.file.read(f"{name}.weight")
        return y

    def _attention(self, x: Floats, block: str) -> Floats:
        config = self.config
        self._observe(x, [f"{block}attn_{kind}" for kind in "qkv"])
        q, k = self._rotated(x, block, "q", config.heads), self._rotated(x, block, "k", config.kv_heads)
        v = self._linear(x, f"{block}attn_v").reshape(len(x), config.kv_heads, config.head_size)
        future = np.triu(np.full((len(x), len(x)), -1e30, np.float32), 1)
        mixed = np.empty_like(q)
        for head in range(config.heads):
            shared = head * config.kv_heads // config.heads
            scores = q[:, head] @ k[:, shared].T / np.float32(np.sqrt(config.head_size)) + future
            shares = np.exp(scores - scores.max(axis=1, keepdims=True))
            mixed[:, head] = shares @ v[:, shared] / shares.sum(axis=1, keepdims=True)
        rows = mixed.reshape(len(x), -1)
        self._observe(rows, [f"{block}attn_output"])
        return self._linear(rows, f"{block}attn_output")

    def _rotated(self, x: Floats, block: str, kind: str, heads: int) -> Floats:
        """Queries or keys [S, heads, head_size], normed where the model does that, and rotated."""
        size = self.config.head_size
        y = self._linear(x, f"{block}attn_{kind}")
        if self.config.paired_rotation:
            y = y[:, halves_from_pairs(heads, size)]
        y = y.reshape(len(x), heads, size)
        if f"{block}attn_{kind}_norm.weight" in self.file:
            y = self._norm(y, f"{block}attn_{kind}_norm")
        turned = np.concatenate([-y[..., size // 2 :], y[..., : size // 2]], axis=-1)
        return np.asarray(y * self._cos + turned * self._sin, np.float32)

    def _feed_forward(self, x: Floats, block: str) -> Floats:
        self._observe(x, [f"{block}ffn_gate", f"{block}ffn_up"])
        gate = self._linear(x, f"{block}ffn_gate")
        hidden = gate / (1 + np.exp(-np.clip(gate, -80, 80))) * self._linear(x, f"{block}ffn_up")
        self._observe(hidden, [f"{block}ffn_down"])
        return self._linear(hidden, f"{block}ffn_down")
