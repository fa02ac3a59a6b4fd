"""An encoder as a delegate graph: the tokens of one text in, its embedding out.

One graph serves any number of tokens from 1 to the maximum. Every token sees all the others, so a text is
given whole, and there is no cache.
"""

from __future__ import annotations

import numpy as np

from pteron.llm.architectures.encoders import EncoderConfig, Pooling
from pteron.llm.gguf.delegate_builder import DelegateBuilder, Value
from pteron.llm.gguf.graph_layers import GraphLayers
from pteron.llm.gguf.weights import Weights
from pteron.pte.vulkan import VkGraph

SMALLEST = 1e-24  # is added to the mean square of a vector: one of zeros has no direction


def build_encoder(
    config: EncoderConfig, weights: Weights, max_seq_len: int
) -> tuple[VkGraph, DelegateBuilder]:
    """The graph, and the builder that has its data."""
    encoder = Encoder(config, weights, max_seq_len)
    return encoder.builder.finish(encoder.embedding()), encoder.builder


class Encoder(GraphLayers):
    def __init__(self, config: EncoderConfig, weights: Weights, max_seq_len: int) -> None:
        super().__init__(config, weights, max_seq_len)
        self.config = config

    def embedding(self) -> Value:
        x = self.norm(self.add(self.embed(), self._places()), "token_embd_norm", "layer")
        for number in range(self.config.layers):
            block = f"blk.{number}."
            x = self.norm(self.add(x, self._attention(x, block)), f"{block}attn_output_norm", "layer")
            x = self.norm(self.add(x, self._feed_forward(x, block)), f"{block}layer_output_norm", "layer")
        vector = self._pooled(x)
        return self._normalized(vector) if self.config.normalize else vector

    def _places(self) -> Value:
        """What is added to the tokens' vectors: one for the position, and one for the kind of text.

        All texts are of the first kind. The others are for models that read two texts at once.
        """
        table = np.zeros((1, self.config.width), np.float32)
        if "position_embd.weight" in self.weights:
            table = self.weights.vector("position_embd.weight")[: self.length]
        if "token_types.weight" in self.weights:
            table = table + self.weights.vector("token_types.weight")[0]
        places = self._prepacked(table)
        if len(table) == 1:  # the same for every position
            return places
        bounds = (0, 0, self._live_length, 1)  # dimension, start, end, step
        return self.builder.call("aten.slice_copy.Tensor", places, *bounds, shape=table.shape)

    def _attention(self, x: Value, block: str) -> Value:
        q, k, v = (self.split(y, self.config.heads) for y in self._projections(x, block))
        if self.config.rotary is not None:
            q, k = self.rotate(q, k, self.config.rotary)
        mixed = self.builder.call(
            "custom_sdpa.default",
            q,
            k,
            v,
            self._position,
            None,  # no mask
            0.0,  # no dropout
            False,  # not causal
            None,  # the usual scale, 1 / sqrt(head size)
            shape=q.shape,
        )
        return self.linear(self.join(mixed), f"{block}attn_output")

    def _projections(self, x: Value, block: str) -> list[Value]:
        if f"{block}attn_qkv.weight" not in self.weights:
            return [self.linear(x, f"{block}attn_{part}") for part in "qkv"]
        parts = np.split(np.arange(3 * self.config.width), 3)
        return [self.linear(x, f"{block}attn_qkv", rows) for rows in parts]

    def _feed_forward(self, x: Value, block: str) -> Value:
        y, kind = self.linear(x, f"{block}ffn_up"), self.config.activation
        if self.config.architecture.is_gated:
            y = self.multiply(self.activate(self.linear(x, f"{block}ffn_gate"), kind), y)
        else:
            y = self.activate(y, kind)
        return self.linear(y, f"{block}ffn_down")

    def _pooled(self, x: Value) -> Value:
        """The vectors of all tokens as one: [1, width]."""
        g, width = self.builder, self.config.width
        if self.config.pooling is Pooling.MEAN:
            return g.call("aten.mean.dim", x, [0], True, None, shape=(1, width))
        token = 0 if self.config.pooling is Pooling.CLS else -1
        rows = self._view(x, (1, self._live_length, width), (1, self.length, width))
        return g.call("aten.select_copy.int", rows, 1, token, shape=(1, width))

    def _normalized(self, x: Value) -> Value:
        """x with length 1: the square of its length is its mean square times its width."""
        g, width = self.builder, self.config.width
        weight = g.constant(np.full(width, width**-0.5, np.float32))
        return g.call("et_vk.rms_norm.default", x, weight, SMALLEST, shape=x.shape)
