"""Weights for operators that stock ExecuTorch knows: rounded to symmetric 4 bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from pteron.errors import UnsupportedError
from pteron.llm.architectures.config import Config
from pteron.llm.architectures.tensors import Floats, Tensors
from pteron.llm.architectures.transformer import Rows
from pteron.llm.gguf.delegate_builder import DelegateBuilder, Value
from pteron.llm.gguf.quantize import Quantized, quantize
from pteron.llm.gguf.weights import EMBEDDING, HEAD, Weights

COMPARED_ROWS = 128  # of each matrix, to see how much rounding changed it


def check_stock_operators(config: Config, source: str) -> None:
    """Refuse a model that needs operators of Pteron's own."""
    needs = {
        "a sliding window": any(layer.window is not None for layer in config.layers),
        "soft-capped attention": config.attention_softcap is not None,
        "a mixture of experts": config.experts is not None,
    }
    if any(needs.values()):
        missing = " and ".join(name for name, is_needed in needs.items() if is_needed)
        raise UnsupportedError(
            f"{source}: {config.architecture.name} has {missing}, for which ExecuTorch has no operators: "
            "convert it without --stock"
        )


@dataclass(frozen=True, slots=True)
class StockMatrix:
    """A sum of 4-bit matrices, and a bias."""

    parts: tuple[Quantized, ...]
    bias: Floats | None = None

    def product(self, g: DelegateBuilder, x: Value) -> Value:
        shape = (*x.shape[:-1], len(self.parts[0].packed))
        bias = None if self.bias is None else g.constant(padded(self.bias))
        return _sum(
            g,
            [
                g.call(
                    "et_vk.linear_q4gsw.default",
                    x,
                    g.constant(part.packed),
                    g.constant(padded(part.scales.T)),
                    part.group_size,
                    bias if number == 0 else None,
                    shape=shape,
                )
                for number, part in enumerate(self.parts)
            ],
        )

    def lookup(self, g: DelegateBuilder, tokens: Value) -> Value:
        shape = (*tokens.shape, 2 * self.parts[0].packed.shape[1])
        return _sum(
            g,
            [
                g.call(
                    "et_vk.embedding_q4gsw.default",
                    g.constant(part.packed),
                    g.constant(part.scales),
                    part.group_size,
                    tokens,
                    True,  # the layout of a linear weight: its bytes can be the output head's too
                    shape=shape,
                )
                for part in self.parts
            ],
        )


class StockWeights(Weights):
    def __init__(
        self,
        tensors: Tensors,
        layers: int,
        group_size: int,
        importance: Mapping[str, Floats],
        on_matrix: Callable[[int], None],
    ) -> None:
        """`importance` of linear layers' inputs goes by the layers' names; `on_matrix` hears each size."""
        super().__init__(tensors)
        self._group_size = group_size
        self._edges = ("blk.0.", f"blk.{layers - 1}.")
        self._importance = importance
        self._on_matrix = on_matrix
        self._head: StockMatrix | None = None
        self._squares = self._errors = 0.0  # of weights, and of how much they differ from the file's

    def linear(self, name: str, rows: Rows | None = None) -> StockMatrix:
        make = self._precise if self._is_sensitive(name) else self._coarse
        return replace(make(name, rows), bias=self.bias(name, rows))

    def expert_product(self, g: DelegateBuilder, x: Value, name: str, chosen: Value) -> Value:
        raise UnsupportedError(f"{self._tensors.name}: ExecuTorch has no operator for mixtures of experts")

    def _is_sensitive(self, name: str) -> bool:
        """Where errors cost the most, weight for weight: at both ends, and in the values attention mixes."""
        return name.startswith(self._edges) or name.endswith("attn_v")

    def embedding(self) -> StockMatrix:
        return self.head() if self.is_tied else self._coarse(EMBEDDING)

    def head(self) -> StockMatrix:
        if self._head is None:
            self._head = self._precise(EMBEDDING if self.is_tied else HEAD)
        return self._head

    @property
    def description(self) -> str:
        return f"4 bits, groups of {self._group_size}; 8 in the outer layers, attention values and head"

    @property
    def rounding(self) -> float:
        return float(np.sqrt(self._errors / max(self._squares, 1e-30)))

    def _note_rounding(self, name: str, rows: Rows | None, made: StockMatrix) -> None:
        """Compare some rows with what they were made from."""
        step = -(-len(made.parts[0].packed) // COMPARED_ROWS)
        some = slice(None, None, step)
        values = self._tensors.read(f"{name}.weight", some if rows is None else rows[some])
        kept = sum(part.dequantize(some) for part in made.parts)
        self._squares += step * float(np.square(values).sum(dtype=np.float64))
        self._errors += step * float(np.square(values - kept).sum(dtype=np.float64))

    def _coarse(self, name: str, rows: Rows | None = None) -> StockMatrix:
        made = StockMatrix((self._quantize(name, rows),))
        self._note_rounding(name, rows, made)
        return made

    def _precise(self, name: str, rows: Rows | None = None) -> StockMatrix:
        """A matrix in twice the bits: what the first four leave over is quantised again."""
        coarse = self._quantize(name, rows)
        made = StockMatrix((coarse, self._quantize(name, rows, coarse)))
        self._note_rounding(name, rows, made)
        return made

    def _quantize(self, name: str, rows: Rows | None = None, taken: Quantized | None = None) -> Quantized:
        """The given rows of a matrix; or what is left of them when `taken` is taken away."""
        tensor = f"{name}.weight"
        height, width = self._tensors.shape(tensor)
        chosen = height if rows is None else len(rows)

        def read(block: slice) -> Floats:
            values = self._tensors.read(tensor, block if rows is None else rows[block])
            return values if taken is None else values - taken.dequantize(block)

        result = quantize(chosen, width, self._group_size, read, self._importance.get(name))
        self._on_matrix(chosen * width)
        return result


def _sum(g: DelegateBuilder, parts: list[Value]) -> Value:
    return reduce(lambda a, b: g.call("aten.add.Tensor", a, b, 1, shape=a.shape), parts)


def padded(array: Floats) -> Floats:
    """The last dimension filled up to a multiple of four, as ExecuTorch's kernels want scales and biases."""
    missing = -array.shape[-1] % 4
    return np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, missing)]) if missing else array
