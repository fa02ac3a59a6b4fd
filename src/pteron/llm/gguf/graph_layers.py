"""The parts of decoders and encoders, as calls of operators in a delegate graph."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pteron.llm.architectures.architecture import Activation, NormKind
from pteron.llm.architectures.config import Rotary
from pteron.llm.architectures.rotary import rotation_tables
from pteron.llm.architectures.transformer import Rows
from pteron.llm.gguf.delegate_builder import PREPACK, DelegateBuilder, Value
from pteron.llm.gguf.weights import Weights

GELU = {"gelu": "none", "gelu_tanh": "tanh"}


class Sizes(Protocol):
    """What these parts need to know of a model."""

    @property
    def width(self) -> int: ...

    @property
    def queries(self) -> int:
        """The width of all heads together."""

    @property
    def head_size(self) -> int: ...

    @property
    def epsilon(self) -> float: ...


class GraphLayers:
    """Each method writes calls into a DelegateBuilder. Tensors are [rows, width], with a row for each token.

    The tokens are [batch, S], for any S up to a maximum. A decoder has a batch of 1.
    """

    def __init__(self, sizes: Sizes, weights: Weights, max_seq_len: int, batch: int = 1) -> None:
        self.sizes = sizes
        self.weights = weights
        self.length = max_seq_len
        self.context = self.rotary_context = max_seq_len  # positions of tables, and what they are made for
        self.batch = batch
        self.builder = DelegateBuilder()
        self._tokens = self.builder.input((batch, max_seq_len), "int32")
        self._live_length = self.builder.symint("sym_size.int", self._tokens, 1)
        self._live_batch: Value | int = 1
        self._live_rows: Value | int = self._live_length
        self._position: Value | int = 0  # of the first token
        self._tables: dict[Rotary, tuple[Value, Value]] = {}

    def embed(self) -> Value:
        return self._rows(self.weights.embedding().lookup(self.builder, self._tokens), self.sizes.width)

    # -- layers ---------------------------------------------------------------------------------

    def linear(self, x: Value, name: str, rows: Rows | None = None) -> Value:
        return self.weights.linear(name, rows).product(self.builder, x)

    def norm(self, x: Value, name: str, kind: NormKind) -> Value:
        g, epsilon = self.builder, self.sizes.epsilon
        weight = g.constant(self.weights.vector(f"{name}.weight"))
        if kind == "rms":
            return g.call("et_vk.rms_norm.default", x, weight, epsilon, shape=x.shape)
        bias = self.weights.bias(name)
        moments = (*x.shape[:-1], 1)  # the mean and the deviation, which nothing reads
        return g.call_first(
            "aten.native_layer_norm.default",
            x,
            [x.shape[-1]],
            weight,
            None if bias is None else g.constant(bias),
            epsilon,
            shapes=(x.shape, moments, moments),
        )

    def add(self, a: Value, b: Value) -> Value:
        return self.builder.call("aten.add.Tensor", a, b, 1, shape=a.shape)

    def multiply(self, a: Value, b: Value) -> Value:
        return self.builder.call("aten.mul.Tensor", a, b, shape=a.shape)

    def scale(self, x: Value, factor: float) -> Value:
        return self.multiply(x, self._prepacked(np.array([factor], np.float32)))

    def softcap(self, x: Value, cap: float) -> Value:
        bounded = self.builder.call("aten.tanh.default", self.scale(x, 1 / cap), shape=x.shape)
        return self.scale(bounded, cap)

    def activate(self, x: Value, kind: Activation) -> Value:
        if kind == "silu":
            return self.multiply(x, self.builder.call("aten.sigmoid.default", x, shape=x.shape))
        return self.builder.call("aten.gelu.default", x, GELU[kind], shape=x.shape)

    # -- attention ------------------------------------------------------------------------------

    def split(self, x: Value, heads: int) -> Value:
        size = self.sizes.head_size
        return self._view(
            x, (self._live_batch, self._live_length, heads, size), (self.batch, self.length, heads, size)
        )

    def join(self, x: Value) -> Value:
        return self._rows(x, self.sizes.queries)

    def rotate(self, q: Value, k: Value, rotary: Rotary) -> tuple[Value, Value]:
        if rotary not in self._tables:
            cos, sin = rotation_tables(rotary.for_context(self.rotary_context), self.context)
            self._tables[rotary] = self._prepacked(cos), self._prepacked(sin)
        return self.builder.call_pair(
            "et_vk.apply_rotary_emb_hf.default",
            q,
            k,
            *self._tables[rotary],
            self._position,
            shapes=(q.shape, k.shape),
        )

    # -- shapes ---------------------------------------------------------------------------------

    def _rows(self, x: Value, width: int) -> Value:
        return self._view(x, (self._live_rows, width), (self.batch * self.length, width))

    def _view(self, x: Value, size: tuple[Value | int, ...], largest: tuple[int, ...]) -> Value:
        return self.builder.call("aten.view_copy.default", x, size, shape=largest)

    def _prepacked(self, array: NDArray[Any]) -> Value:
        """A constant for an operator that takes none: a tensor that is filled when the graph loads."""
        constant = self.builder.constant(array)
        return self.builder.call(PREPACK, constant, shape=array.shape, dtype=array.dtype.name)
