"""A decoder, written once. Operators turn it into a graph, or compute it."""

from __future__ import annotations

from collections.abc import Container
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from pteron.llm.architectures.architecture import Activation, NormKind
from pteron.llm.architectures.config import Config, Experts, Layer, Rotary
from pteron.llm.architectures.rotary import halves_from_pairs

Rows = NDArray[np.int64]
T = TypeVar("T")


class Operators(Protocol[T]):
    """What a decoder is made of.

    T is a tensor of rows [S, width], or of heads [S, heads, head_size] between `split` and `join`.
    """

    def embed(self) -> T:
        """The vectors of the tokens."""

    def positions(self) -> T:
        """The learned vectors of the tokens' positions."""

    def linear(self, x: T, name: str, rows: Rows | None = None) -> T:
        """A linear layer with its bias, if it has one; `rows` chooses among its outputs."""

    def head(self, x: T) -> T:
        """The logits of vectors."""

    def norm(self, x: T, name: str, kind: NormKind) -> T: ...

    def add(self, a: T, b: T) -> T: ...

    def multiply(self, a: T, b: T) -> T: ...

    def scale(self, x: T, factor: float) -> T: ...

    def softcap(self, x: T, cap: float) -> T:
        """cap * tanh(x / cap)"""

    def activate(self, x: T, kind: Activation) -> T: ...

    def split(self, x: T, heads: int) -> T: ...

    def join(self, x: T) -> T: ...

    def rotate(self, q: T, k: T, rotary: Rotary) -> tuple[T, T]: ...

    def attend(self, q: T, k: T, v: T, window: int | None) -> T:
        """Causal attention over all tokens so far, with the scale and the soft-cap of the model."""

    def choose(self, scores: T, count: int, normalized: bool) -> tuple[T, T]:
        """The largest of softmax(scores) [S, count], and their numbers. If normalized, they add up to 1."""

    def expert_linear(self, x: T, name: str, chosen: T) -> T:
        """The linear layers of chosen experts [S, count, out], of x [S, in] or [S, count, in]."""

    def combine(self, x: T, shares: T) -> T:
        """The sum of the experts' results [S, count, width], times their shares."""

    def gated(self, x: T, by: T, name: str) -> T:
        """x times the sigmoid of the product of `by` with a vector."""

    def last(self, x: T) -> T:
        """Of the rows, those for which logits are wanted."""


class Transformer(Generic[T]):
    """The model of a Config. `names` are the tensors that it has."""

    def __init__(self, config: Config, names: Container[str], operators: Operators[T]) -> None:
        self.config = config
        self.names = names
        self.op = operators

    def logits(self) -> T:
        config, op = self.config, self.op
        logits = self._scaled(op.head(self.hidden()), config.logit_scale)
        return logits if config.logit_softcap is None else op.softcap(logits, config.logit_softcap)

    def hidden(self) -> T:
        """What the output head reads."""
        x = self._scaled(self.op.embed(), self.config.embedding_scale)
        if self.config.architecture.learned_positions:
            x = self.op.add(x, self.op.positions())
        for number, layer in enumerate(self.config.layers):
            x = self._block(x, f"blk.{number}.", layer)
        return self._norm(self.op.last(x), "output_norm")

    def _block(self, x: T, block: str, layer: Layer) -> T:
        """Norms that a family does not have are left out."""
        normed = self._norm(x, f"{block}attn_norm")
        mixed = self._norm(self._attention(normed, block, layer), f"{block}post_attention_norm")
        y = self._add_scaled(x, mixed)
        # Without a norm of its own, the MLP of a pre-norm family reads what attention reads.
        is_parallel = f"{block}attn_norm.weight" in self.names and f"{block}ffn_norm.weight" not in self.names
        read = normed if is_parallel else self._norm(y, f"{block}ffn_norm")
        return self._add_scaled(y, self._norm(self._feed_forward(read, block), f"{block}post_ffw_norm"))

    def _attention(self, x: T, block: str, layer: Layer) -> T:
        config, op = self.config, self.op
        q, k, v = self._projections(x, block, layer)
        whole_rows = config.architecture.head_norm == "row"
        if whole_rows:
            q, k = self._norm(q, f"{block}attn_q_norm"), self._norm(k, f"{block}attn_k_norm")
        q, k, v = op.split(q, config.heads), op.split(k, config.kv_heads), op.split(v, config.kv_heads)
        if not whole_rows:
            q, k = self._norm(q, f"{block}attn_q_norm"), self._norm(k, f"{block}attn_k_norm")
        if layer.rotary is not None:
            q, k = op.rotate(q, k, layer.rotary)
        return op.linear(op.join(op.attend(q, k, v, layer.window)), f"{block}attn_output")

    def _projections(self, x: T, block: str, layer: Layer) -> tuple[T, T, T]:
        config, linear = self.config, self.op.linear
        q = self._order(config.heads, layer)
        k = self._order(config.kv_heads, layer)
        if not config.architecture.fused_qkv:
            return (
                linear(x, f"{block}attn_q", q),
                linear(x, f"{block}attn_k", k),
                linear(x, f"{block}attn_v"),
            )
        rows = np.arange(config.queries + 2 * config.keys)
        of_q, of_k, of_v = np.split(rows, [config.queries, config.queries + config.keys])
        name = f"{block}attn_qkv"
        return (
            linear(x, name, of_q if q is None else of_q[q]),
            linear(x, name, of_k if k is None else of_k[k]),
            linear(x, name, of_v),
        )

    def _order(self, heads: int, layer: Layer) -> Rows | None:
        """The rows of queries or keys in the order for rotation of halves."""
        if layer.rotary is None or not self.config.stores_pairs:
            return None
        return halves_from_pairs(heads, self.config.head_size, layer.rotary.size)

    def _feed_forward(self, x: T, block: str) -> T:
        experts = self.config.experts
        return self._mlp(x, block) if experts is None else self._mixture(x, block, experts)

    def _mixture(self, x: T, block: str, experts: Experts) -> T:
        op, activation = self.op, self.config.architecture.activation
        scores = op.linear(x, f"{block}ffn_gate_inp")
        shares, chosen = op.choose(scores, experts.used, experts.normalized)
        gate = op.activate(op.expert_linear(x, f"{block}ffn_gate_exps", chosen), activation)
        hidden = op.multiply(gate, op.expert_linear(x, f"{block}ffn_up_exps", chosen))
        mixed = op.combine(op.expert_linear(hidden, f"{block}ffn_down_exps", chosen), shares)
        if not experts.shared_hidden:
            return mixed
        gate = op.activate(op.linear(x, f"{block}ffn_gate_shexp"), activation)
        hidden = op.multiply(gate, op.linear(x, f"{block}ffn_up_shexp"))
        shared = op.linear(hidden, f"{block}ffn_down_shexp")
        return op.add(mixed, op.gated(shared, x, f"{block}ffn_gate_inp_shexp"))

    def _mlp(self, x: T, block: str) -> T:
        config, op = self.config, self.op
        family, up = config.architecture, f"{block}ffn_up"
        if not family.is_gated:
            hidden = op.activate(op.linear(x, up), family.activation)
        elif family.fused_gate_up:
            gates, rows = np.split(np.arange(2 * config.hidden), 2)
            gate = op.activate(op.linear(x, up, gates), family.activation)
            hidden = op.multiply(gate, op.linear(x, up, rows))
        else:
            gate, linear = op.linear(x, f"{block}ffn_gate"), op.linear(x, up)
            hidden = op.multiply(op.activate(gate, family.activation), linear)
        return op.linear(hidden, f"{block}ffn_down")

    def _norm(self, x: T, name: str) -> T:
        is_there = f"{name}.weight" in self.names
        return self.op.norm(x, name, self.config.architecture.norm) if is_there else x

    def _scaled(self, x: T, factor: float) -> T:
        return x if factor == 1 else self.op.scale(x, factor)

    def _add_scaled(self, x: T, y: T) -> T:
        return self.op.add(x, self._scaled(y, self.config.residual_scale))
