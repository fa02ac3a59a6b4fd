"""An encoder as a delegate graph: the tokens of some texts in, their embeddings out.

The inputs are tokens [B, S] and a mask [B, S], for any B and S up to their maxima. Texts with fewer than S
tokens are padded at the end. The mask is 1 for tokens and 0 for padding. Every token sees all tokens of its
text, so a text is given whole, and there is no cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pteron.llm.architectures.encoders import EncoderConfig, Pooling
from pteron.llm.gguf.delegate_builder import DelegateBuilder, Value
from pteron.llm.gguf.graph_layers import GraphLayers
from pteron.llm.gguf.weights import Weights
from pteron.pte.vulkan import VkGraph

SMALLEST = 1e-24  # is added to the mean square of a vector: one of zeros has no direction


def build_encoder(
    config: EncoderConfig, weights: Weights, max_seq_len: int, batch: int
) -> tuple[VkGraph, DelegateBuilder]:
    """The graph, and the builder that has its data."""
    encoder = Encoder(config, weights, max_seq_len, batch)
    return encoder.builder.finish(encoder.embedding()), encoder.builder


class Encoder(GraphLayers):
    def __init__(self, config: EncoderConfig, weights: Weights, max_seq_len: int, batch: int) -> None:
        super().__init__(config, weights, max_seq_len, batch)
        self.config = config
        g = self.builder
        self._mask = g.input((batch, max_seq_len), "int32")
        self._live_batch = g.symint("sym_size.int", self._tokens, 0)
        self._live_rows = -1  # as many as the elements make
        seen = g.call("aten.ne.Scalar", self._mask, 0, shape=self._mask.shape, dtype="bool")
        sizes = (self._live_batch, 1, 1, self._live_length), (batch, 1, 1, max_seq_len)
        self._seen = g.call("aten.view_copy.default", seen, sizes[0], shape=sizes[1], dtype="bool")

    def embedding(self) -> Value:
        words = self.weights.embedding().lookup(self.builder, self._tokens)
        rows = self._rows(self.add(words, self._places()), self.config.width)
        x = self.norm(rows, "token_embd_norm", "layer")
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
        # One row is for every position.
        return self._prepacked(table) if len(table) == 1 else self._first_rows(table)

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
            self._seen,
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
        """The vectors of all tokens of a text as one: [B, width]."""
        g, width = self.builder, self.config.width
        tokens = self._texts(x, width)
        if self.config.pooling is Pooling.CLS:
            return g.call("aten.select_copy.int", tokens, 1, 0, shape=(self.batch, width))
        shares = self._mean() if self.config.pooling is Pooling.MEAN else self._last()
        weighted = self.multiply(tokens, self._texts(shares, 1))
        return g.call("aten.sum.dim_IntList", weighted, [1], False, None, shape=(self.batch, width))

    def _mean(self) -> Value:
        """The share of each token in the mean of its text: [B, S]."""
        mask = self._floats(self._mask)
        return self.builder.call("aten.div.Tensor", mask, self._counts("float32"), shape=mask.shape)

    def _last(self) -> Value:
        """1 for the last token of each text, and 0 for the others: [B, S]."""
        g = self.builder
        ordinals = self._first_rows(np.arange(1, self.length + 1, dtype=np.int32))
        is_last = g.call(
            "aten.eq.Tensor", ordinals, self._counts("int32"), shape=self._mask.shape, dtype="bool"
        )
        return self._floats(is_last)

    def _floats(self, x: Value) -> Value:
        options = (None,) * 6  # dtype, layout and others: the output decides
        return self.builder.call("aten._to_copy.default", x, *options, shape=x.shape)

    def _counts(self, dtype: str) -> Value:
        """The number of tokens of each text: [B, 1]."""
        shape = (self.batch, 1)
        return self.builder.call(
            "aten.sum.dim_IntList", self._mask, [1], True, None, shape=shape, dtype=dtype
        )

    def _normalized(self, x: Value) -> Value:
        """x with length 1: the square of its length is its mean square times its width."""
        g, width = self.builder, self.config.width
        weight = g.constant(np.full(width, width**-0.5, np.float32))
        return g.call("et_vk.rms_norm.default", x, weight, SMALLEST, shape=x.shape)

    def _first_rows(self, table: NDArray[Any]) -> Value:
        """A row for each position of a text, of a constant with a row for every possible one."""
        bounds = (0, 0, self._live_length, 1)  # dimension, start, end, step
        return self.builder.call(
            "aten.slice_copy.Tensor",
            self._prepacked(table),
            *bounds,
            shape=table.shape,
            dtype=table.dtype.name,
        )

    def _texts(self, x: Value, width: int) -> Value:
        """The rows of tokens by text: [B, S, width]."""
        return self._view(x, (self._live_batch, self._live_length, width), (self.batch, self.length, width))
