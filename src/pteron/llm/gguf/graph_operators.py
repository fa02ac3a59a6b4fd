"""A decoder as a delegate graph: tokens and their position in, logits of the last token out.

One graph serves any number of tokens from 1 to the maximum. Keys and values are kept in caches inside the
graph, so a text is fed in pieces, each with the position at which it begins.
"""

from __future__ import annotations

import numpy as np

from pteron.llm.architectures.architecture import Activation, NormKind
from pteron.llm.architectures.config import Config, Rotary
from pteron.llm.architectures.rotary import rotation_tables
from pteron.llm.architectures.tensors import Floats
from pteron.llm.architectures.transformer import Rows, Transformer
from pteron.llm.gguf.delegate_builder import PREPACK, DelegateBuilder, Value
from pteron.llm.gguf.weights import Weights
from pteron.pte.vulkan import VkGraph


def build_graph(
    config: Config, weights: Weights, max_seq_len: int, max_context: int
) -> tuple[VkGraph, DelegateBuilder]:
    """The graph, and the builder that has its data."""
    operators = GraphOperators(config, weights, max_seq_len, max_context)
    logits = Transformer(config, weights, operators).logits()
    return operators.builder.finish(logits), operators.builder


class GraphOperators:
    """Each operator writes a call into a DelegateBuilder."""

    def __init__(self, config: Config, weights: Weights, max_seq_len: int, max_context: int) -> None:
        self.config = config
        self.weights = weights
        self.length = max_seq_len
        self.context = max_context
        self.builder = g = DelegateBuilder()
        self._tokens = g.input((1, max_seq_len), "int32")
        self._input_pos = g.input((1,), "int32")
        self._live_length = g.symint("sym_size.int", self._tokens, 1)
        self._position = g.symint("et_vk.select_as_symint.default", self._input_pos, 0, 0)
        self._tables: dict[Rotary, tuple[Value, Value]] = {}
        # Every cache begins as zeros: one stored constant, of which each cache is a copy of its own.
        self._empty_cache = np.zeros((1, max_context, config.kv_heads, config.head_size), np.float32)

    # -- tokens in, logits out ------------------------------------------------------------------

    def embed(self) -> Value:
        return self._rows(self.weights.embedding().lookup(self.builder, self._tokens), self.config.width)

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

    # -- layers ---------------------------------------------------------------------------------

    def linear(self, x: Value, name: str, rows: Rows | None = None) -> Value:
        return self.weights.linear(name, rows).product(self.builder, x)

    def norm(self, x: Value, name: str, kind: NormKind) -> Value:
        weight = self.builder.constant(self.weights.vector(f"{name}.weight"))
        return self.builder.call("et_vk.rms_norm.default", x, weight, self.config.epsilon, shape=x.shape)

    def add(self, a: Value, b: Value) -> Value:
        return self.builder.call("aten.add.Tensor", a, b, 1, shape=a.shape)

    def multiply(self, a: Value, b: Value) -> Value:
        return self.builder.call("aten.mul.Tensor", a, b, shape=a.shape)

    def scale(self, x: Value, factor: float) -> Value:
        return self.builder.call("aten.mul.Scalar", x, factor, shape=x.shape)

    def softcap(self, x: Value, cap: float) -> Value:
        bounded = self.builder.call("aten.tanh.default", self.scale(x, 1 / cap), shape=x.shape)
        return self.scale(bounded, cap)

    def activate(self, x: Value, kind: Activation) -> Value:
        if kind == "silu":
            return self.multiply(x, self.builder.call("aten.sigmoid.default", x, shape=x.shape))
        return self.builder.call("aten.gelu.default", x, GELU[kind], shape=x.shape)

    # -- attention ------------------------------------------------------------------------------

    def split(self, x: Value, heads: int) -> Value:
        size = self.config.head_size
        return self._view(x, (1, self._live_length, heads, size), (1, self.length, heads, size))

    def join(self, x: Value) -> Value:
        return self._rows(x, self.config.queries)

    def rotate(self, q: Value, k: Value, rotary: Rotary) -> tuple[Value, Value]:
        if rotary not in self._tables:
            cos, sin = rotation_tables(rotary.for_context(self.context), self.context)
            self._tables[rotary] = self._prepacked(cos), self._prepacked(sin)
        return self.builder.call_pair(
            "et_vk.apply_rotary_emb_hf.default",
            q,
            k,
            *self._tables[rotary],
            self._position,
            shapes=(q.shape, k.shape),
        )

    def attend(self, q: Value, k: Value, v: Value, window: int | None) -> Value:
        g = self.builder
        return g.call(
            "sdpa_with_kv_cache.default",
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
            shape=q.shape,
        )

    # -- shapes ---------------------------------------------------------------------------------

    def _rows(self, x: Value, width: int) -> Value:
        return self._view(x, (self._live_length, width), (self.length, width))

    def _view(self, x: Value, size: tuple[Value | int, ...], largest: tuple[int, ...]) -> Value:
        return self.builder.call("aten.view_copy.default", x, size, shape=largest)

    def _prepacked(self, array: Floats) -> Value:
        """A constant for an operator that takes none: a tensor that is filled when the graph loads."""
        return self.builder.call(PREPACK, self.builder.constant(array), shape=array.shape)


GELU = {"gelu": "none", "gelu_tanh": "tanh"}
