"""A llama-family decoder as a delegate graph: tokens and their position in, logits of the last token out.

One graph serves any number of tokens from 1 to the maximum. Keys and values are kept in caches inside the
graph, so a text is fed in pieces, each with the position at which it begins.
"""

from __future__ import annotations

import numpy as np

from pteron.llm.gguf.config import Config
from pteron.llm.gguf.delegate_builder import PREPACK, DelegateBuilder, Value
from pteron.llm.gguf.quantize import Floats
from pteron.llm.gguf.rotary import halves_from_pairs, rotation_tables
from pteron.llm.gguf.weights import Order, Weights
from pteron.pte.vulkan import VkGraph


class GraphWriter:
    """Writes the model's operators into a DelegateBuilder."""

    def __init__(self, config: Config, weights: Weights, max_seq_len: int, max_context: int) -> None:
        self.config = config
        self.weights = weights
        self.length = max_seq_len
        self.context = max_context
        self.builder = DelegateBuilder()
        # Every cache begins as zeros: one stored constant, of which each cache is a copy of its own.
        self._empty_cache = np.zeros((1, max_context, config.kv_heads, config.head_size), np.float32)

    def build(self) -> VkGraph:
        g, width = self.builder, self.config.width
        tokens = g.input((1, self.length), "int32")
        input_pos = g.input((1,), "int32")
        self.live_length = g.symint("sym_size.int", tokens, 1)
        self.position = g.symint("et_vk.select_as_symint.default", input_pos, 0, 0)
        self.cos, self.sin = self._rotation()
        rows = self.weights.embedding().lookup(g, tokens)
        x = self._view(rows, (self.live_length, width), (self.length, width))
        for number in range(self.config.layers):
            x = self._add(x, self._attention(self._norm(x, f"blk.{number}.attn_norm"), f"blk.{number}."))
            x = self._add(x, self._feed_forward(self._norm(x, f"blk.{number}.ffn_norm"), f"blk.{number}."))
        rows = self._view(x, (1, self.live_length, width), (1, self.length, width))
        last = g.call("aten.select_copy.int", rows, 1, -1, shape=(1, width))
        return g.finish(self.weights.head().product(g, self._norm(last, "output_norm")))

    def _rotation(self) -> tuple[Value, Value]:
        slower = self.weights.vector("rope_freqs.weight") if "rope_freqs.weight" in self.weights else None
        cos, sin = rotation_tables(self.config, self.context, slower)
        return self._prepacked(cos), self._prepacked(sin)

    def _prepacked(self, array: Floats) -> Value:
        """A constant for an operator that takes none: a tensor that is filled when the graph loads."""
        return self.builder.call(PREPACK, self.builder.constant(array), shape=array.shape)

    # -- blocks ---------------------------------------------------------------------------------

    def _attention(self, x: Value, block: str) -> Value:
        config, g = self.config, self.builder
        q = self._heads(x, f"{block}attn_q", config.heads)
        k = self._heads(x, f"{block}attn_k", config.kv_heads)
        v = self._heads(x, f"{block}attn_v", config.kv_heads)
        if f"{block}attn_q_norm.weight" in self.weights:
            q, k = self._norm(q, f"{block}attn_q_norm"), self._norm(k, f"{block}attn_k_norm")
        q, k = g.call_pair(
            "et_vk.apply_rotary_emb_hf.default",
            q,
            k,
            self.cos,
            self.sin,
            self.position,
            shapes=(q.shape, k.shape),
        )
        mixed = g.call(
            "sdpa_with_kv_cache.default",
            q,
            k,
            v,
            g.constant(self._empty_cache),
            g.constant(self._empty_cache),
            self.position,
            self.live_length,
            None,  # no mask beyond causality
            0.0,  # no dropout
            True,  # causal
            None,  # the usual scale, 1 / sqrt(head size)
            shape=q.shape,
        )
        joined = config.heads * config.head_size
        rows = self._view(mixed, (self.live_length, joined), (self.length, joined))
        return self._linear(rows, f"{block}attn_output")

    def _heads(self, x: Value, name: str, heads: int) -> Value:
        """x projected, as [1, S, heads, head_size]."""
        size = self.config.head_size
        rotated_pairs = self.config.paired_rotation and not name.endswith("attn_v")
        order = halves_from_pairs(heads, size) if rotated_pairs else None
        y = self._linear(x, name, order)
        return self._view(y, (1, self.live_length, heads, size), (1, self.length, heads, size))

    def _feed_forward(self, x: Value, block: str) -> Value:
        g = self.builder
        gate = self._linear(x, f"{block}ffn_gate")
        up = self._linear(x, f"{block}ffn_up")
        silu = self._multiply(gate, g.call("aten.sigmoid.default", gate, shape=gate.shape))
        return self._linear(self._multiply(silu, up), f"{block}ffn_down")

    # -- operators ------------------------------------------------------------------------------

    def _linear(self, x: Value, name: str, order: Order | None = None) -> Value:
        return self.weights.linear(name, order).product(self.builder, x)

    def _norm(self, x: Value, name: str) -> Value:
        weight = self.builder.constant(self.weights.vector(f"{name}.weight"))
        return self.builder.call("et_vk.rms_norm.default", x, weight, self.config.epsilon, shape=x.shape)

    def _view(self, x: Value, size: tuple[Value | int, ...], largest: tuple[int, ...]) -> Value:
        return self.builder.call("aten.view_copy.default", x, size, shape=largest)

    def _add(self, a: Value, b: Value) -> Value:
        return self.builder.call("aten.add.Tensor", a, b, 1, shape=a.shape)

    def _multiply(self, a: Value, b: Value) -> Value:
        return self.builder.call("aten.mul.Tensor", a, b, shape=a.shape)
