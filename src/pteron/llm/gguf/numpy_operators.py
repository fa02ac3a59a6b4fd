"""A decoder computed in numpy, in float32, from a file's own numbers: what every conversion is measured by.

It reads each tensor when it comes to it, and knows no cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import sqrt

import numpy as np

from pteron.llm.architectures.architecture import Activation, NormKind
from pteron.llm.architectures.config import Config, Rotary
from pteron.llm.architectures.rotary import rotation_tables
from pteron.llm.architectures.tensors import Floats, Tensors
from pteron.llm.architectures.transformer import Rows, Transformer
from pteron.llm.gguf.weights import EMBEDDING, head_name

BLOCK = 32  # elements of a row that are rounded to 8 bits with one factor


def reference(
    config: Config, tensors: Tensors, tokens: Sequence[int], precision: str = "float32"
) -> Transformer[Floats]:
    """The model over some tokens: its `logits` are [S, vocabulary]. precision: as of `pteron.load`."""
    return Transformer(config, tensors, NumpyOperators(config, tensors, tokens, precision))


def rounded_operands(x: Floats, weight: Floats, precision: str) -> tuple[Floats, Floats]:
    """The operands of a product of many rows, as a GPU rounds them."""
    if precision == "float16":
        return x.astype(np.float16).astype(np.float32), weight.astype(np.float16).astype(np.float32)
    if precision == "int8" and x.shape[-1] % BLOCK == 0:
        blocks = x.reshape(-1, BLOCK)
        factors = np.abs(blocks).max(axis=1, keepdims=True) / np.float32(127)
        codes = np.round(blocks / np.where(factors == 0, 1, factors))
        return (codes * factors).reshape(x.shape), weight
    return x, weight


class NumpyOperators:
    def __init__(
        self, config: Config, tensors: Tensors, tokens: Sequence[int], precision: str = "float32"
    ) -> None:
        self.config = config
        self.tensors = tensors
        self.tokens = np.array(tokens)
        self.precision = precision

    def embed(self) -> Floats:
        return self.tensors.read(f"{EMBEDDING}.weight", self.tokens)

    def positions(self) -> Floats:
        return self.tensors.read("position_embd.weight", slice(0, len(self.tokens)))

    def linear(self, x: Floats, name: str, rows: Rows | None = None) -> Floats:
        chosen = slice(None) if rows is None else rows
        weight = self.tensors.read(f"{name}.weight", chosen)
        if name != head_name(self.tensors):  # a GPU computes one row of the head
            x, weight = rounded_operands(x, weight, self.precision)
        y: Floats = x @ weight.T
        if f"{name}.bias" in self.tensors:
            y += self.tensors.read(f"{name}.bias")[chosen]
        return y

    def head(self, x: Floats) -> Floats:
        return self.linear(x, head_name(self.tensors))

    def norm(self, x: Floats, name: str, kind: NormKind) -> Floats:
        if kind == "layer":
            x = x - x.mean(axis=-1, keepdims=True)
        power = np.square(x).mean(axis=-1, keepdims=True)
        y: Floats = x / np.sqrt(power + np.float32(self.config.epsilon)) * self.tensors.read(f"{name}.weight")
        return y + self.tensors.read(f"{name}.bias") if f"{name}.bias" in self.tensors else y

    def add(self, a: Floats, b: Floats) -> Floats:
        return a + b

    def multiply(self, a: Floats, b: Floats) -> Floats:
        return a * b

    def scale(self, x: Floats, factor: float) -> Floats:
        return x * np.float32(factor)

    def softcap(self, x: Floats, cap: float) -> Floats:
        y: Floats = np.tanh(x / np.float32(cap)) * np.float32(cap)
        return y

    def activate(self, x: Floats, kind: Activation) -> Floats:
        return ACTIVATIONS[kind](x)

    def split(self, x: Floats, heads: int) -> Floats:
        return x.reshape(len(x), heads, self.config.head_size)

    def join(self, x: Floats) -> Floats:
        return x.reshape(len(x), -1)

    def rotate(self, q: Floats, k: Floats, rotary: Rotary) -> tuple[Floats, Floats]:
        chosen = rotary.for_context(len(self.tokens))
        cos, sin = (table[:, None] for table in rotation_tables(chosen, len(self.tokens)))
        return _rotated(q, cos, sin), _rotated(k, cos, sin)

    def attend(self, q: Floats, k: Floats, v: Floats, window: int | None) -> Floats:
        config = self.config
        scale = np.float32(config.attention_scale or 1 / sqrt(config.head_size))
        hidden = self._hidden_keys(window)
        mixed = np.empty_like(q)
        for head in range(config.heads):
            shared = head * config.kv_heads // config.heads
            scores = q[:, head] @ k[:, shared].T * scale
            if config.attention_softcap is not None:
                scores = self.softcap(scores, config.attention_softcap)
            scores[hidden] = -1e30
            shares = np.exp(scores - scores.max(axis=1, keepdims=True))
            mixed[:, head] = shares @ v[:, shared] / shares.sum(axis=1, keepdims=True)
        return mixed

    def _hidden_keys(self, window: int | None) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
        """[query, key]: those that come later, and those before the window."""
        places = np.arange(len(self.tokens))
        behind = places[:, None] - places
        return (behind < 0) | (behind >= (window or len(places)))

    def choose(self, scores: Floats, count: int, normalized: bool) -> tuple[Floats, Floats]:
        powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
        probabilities = powers / powers.sum(axis=-1, keepdims=True)
        chosen = np.argsort(-probabilities, axis=-1, kind="stable")[:, :count]
        shares = np.take_along_axis(probabilities, chosen, axis=-1)
        if normalized:
            shares = shares / shares.sum(axis=-1, keepdims=True)
        return shares, chosen.astype(np.float32)

    def expert_linear(self, x: Floats, name: str, chosen: Floats) -> Floats:
        rows = x if x.ndim == 3 else np.repeat(x[:, None], chosen.shape[1], axis=1)
        y = np.empty((*chosen.shape, self.tensors.shape(f"{name}.weight")[1]), np.float32)
        for expert in np.unique(chosen):
            here = chosen == expert
            y[here] = rows[here] @ self.tensors.read(f"{name}.weight", int(expert)).T
        return y

    def combine(self, x: Floats, shares: Floats) -> Floats:
        return np.asarray((x * shares[..., None]).sum(axis=1), np.float32)

    def gated(self, x: Floats, by: Floats, name: str) -> Floats:
        score = by @ self.tensors.read(f"{name}.weight")
        return np.asarray(x / (1 + np.exp(-score))[:, None], np.float32)

    def last(self, x: Floats) -> Floats:
        return x


def _rotated(x: Floats, cos: Floats, sin: Floats) -> Floats:
    size = cos.shape[-1]
    turning, rest = x[..., :size], x[..., size:]
    other = np.concatenate([-turning[..., size // 2 :], turning[..., : size // 2]], axis=-1)
    return np.concatenate([turning * cos + other * sin, rest], axis=-1).astype(np.float32)


def _silu(x: Floats) -> Floats:
    y: Floats = x / (1 + np.exp(-np.clip(x, -80, 80)))
    return y


def _gelu_tanh(x: Floats) -> Floats:
    bent = np.tanh(np.float32(0.7978845608) * (x + np.float32(0.044715) * x**3))
    y: Floats = np.float32(0.5) * x * (1 + bent)
    return y


def _gelu(x: Floats) -> Floats:
    """By the error function, which numpy does not have: Abramowitz and Stegun 7.1.26, to 1.5e-7."""
    z = np.abs(x) / np.float32(sqrt(2))
    t = 1 / (1 + np.float32(0.3275911) * z)
    series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    erf = np.sign(x) * (1 - series * np.exp(-np.square(z)))
    return (0.5 * x * (1 + erf)).astype(np.float32)


ACTIVATIONS: dict[Activation, Callable[[Floats], Floats]] = {
    "silu": _silu,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
}
