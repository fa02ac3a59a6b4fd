"""A decoder as a delegate graph: tokens and their position in, logits of the last token out.

One graph serves any number of tokens from 1 to the maximum. Keys and values are kept in caches inside the
graph, so a text is fed in pieces, each with the position at which it begins.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pteron.llm.architectures.config import Config
from pteron.llm.architectures.transformer import Transformer
from pteron.llm.gguf.delegate_builder import DelegateBuilder, Value
from pteron.llm.gguf.graph_layers import GraphLayers
from pteron.llm.gguf.weights import Weights
from pteron.pte.vulkan import VkGraph


@dataclass(frozen=True, slots=True)
class Lengths:
    """For how many tokens a program is made.

    A program whose tables are longer than its KV caches may be loaded with longer ones.
    """

    call: int
    caches: int  # positions of the KV caches in the file, or of an embedder's text
    tables: int  # positions of the tables for rotary embeddings
    rotary: int  # the context that decides between the frequencies of models that have two kinds

    def for_model(self, config: Config) -> Lengths:
        """Without positions that the model was not trained for, or that need other frequencies."""
        most = min(self.tables, config.context)
        for layer in config.layers:
            rotary = layer.rotary
            if rotary is not None and rotary.longer is not None and self.rotary <= rotary.short_context:
                most = min(most, rotary.short_context)
        caches = min(self.caches, most)
        return Lengths(min(self.call, caches), caches, most, min(self.rotary, config.context))


def build_graph(config: Config, weights: Weights, lengths: Lengths) -> tuple[VkGraph, DelegateBuilder]:
    """The graph, and the builder that has its data."""
    operators = GraphOperators(config, weights, lengths)
    logits = Transformer(config, weights, operators).logits()
    return operators.builder.finish(logits), operators.builder


class GraphOperators(GraphLayers):
    """The operators of a decoder: keys and values of earlier tokens are in caches."""

    def __init__(self, config: Config, weights: Weights, lengths: Lengths) -> None:
        super().__init__(config, weights, lengths.call)
        self.config = config
        self.context, self.rotary_context = lengths.tables, lengths.rotary
        self._input_pos = self.builder.input((1,), "int32")
        self._position = self.builder.symint("et_vk.select_as_symint.default", self._input_pos, 0, 0)
        # Every cache begins as zeros: one stored constant, of which each cache is a copy of its own.
        self._empty_cache = np.zeros((1, lengths.caches, config.kv_heads, config.head_size), np.float32)

    def positions(self) -> Value:
        g, width = self.builder, self.config.width
        table = g.constant(self.weights.vector("position_embd.weight"))
        places = g.call(
            "aten.arange.start_step",
            *(0, self._live_length, 1),
            *(None, None, None, None),  # dtype, layout, device, pinned memory
            shape=(self.length,),
            dtype="int32",
        )
        places = g.call("aten.add.Tensor", places, self._input_pos, 1, shape=(self.length,), dtype="int32")
        return g.call("aten.embedding.default", table, places, -1, False, False, shape=(self.length, width))

    def last(self, x: Value) -> Value:
        width = x.shape[-1]
        rows = self._view(x, (1, self._live_length, width), (1, self.length, width))
        return self.builder.call("aten.select_copy.int", rows, 1, -1, shape=(1, width))

    def head(self, x: Value) -> Value:
        return self.weights.head().product(self.builder, x)

    def choose(self, scores: Value, count: int, normalized: bool) -> tuple[Value, Value]:
        g, shape = self.builder, (self.length, count)
        probabilities = g.call("aten._softmax.default", scores, -1, False, shape=scores.shape)
        shares, chosen = g.call_pair(
            "aten.topk.default",
            probabilities,
            count,
            -1,
            True,  # the largest
            True,  # sorted
            shapes=(shape, shape),
            dtypes=("float32", "int32"),
        )
        if normalized:
            total = g.call("aten.sum.dim_IntList", shares, [-1], True, None, shape=(self.length, 1))
            shares = g.call("aten.div.Tensor", shares, total, shape=shape)
        return shares, chosen

    def expert_linear(self, x: Value, name: str, chosen: Value) -> Value:
        return self.weights.expert_product(self.builder, x, name, chosen)

    def combine(self, x: Value, shares: Value) -> Value:
        count = shares.shape[1]
        factors = self._view(shares, (self._live_length, count, 1), (self.length, count, 1))
        parts, shape = self.multiply(x, factors), (self.length, x.shape[-1])
        return self.builder.call("aten.sum.dim_IntList", parts, [1], False, None, shape=shape)

    def gated(self, x: Value, by: Value, name: str) -> Value:
        g, shape = self.builder, (self.length, 1)
        vector = g.constant(self.weights.vector(f"{name}.weight").reshape(1, -1))
        score = g.call("aten.linear.default", by, vector, None, shape=shape)
        return self.multiply(x, g.call("aten.sigmoid.default", score, shape=shape))

    def attend(self, q: Value, k: Value, v: Value, window: int | None) -> Value:
        g, softcap = self.builder, self.config.attention_softcap
        is_stock = window is None and softcap is None
        return g.call(
            "sdpa_with_kv_cache.default" if is_stock else "pteron.sdpa_with_kv_cache.default",
            q,
            k,
            v,
            g.constant(self._empty_cache),
            g.constant(self._empty_cache),
            self._position,
            self._live_length,
            None,  # no mask beyond causality
            0.0,  # no dropout
            True,  # causal
            self.config.attention_scale,
            *(() if is_stock else (window, softcap)),
            shape=q.shape,
        )
