"""The model's weights, as the operators take them: 4-bit matrices, float32 vectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pteron.llm.gguf.quantize import Floats, Quantized, quantize
from pteron.llm.gguf.source import GgufFile

Order = NDArray[np.int64]
EMBEDDING, HEAD = "token_embd", "output"


@dataclass(frozen=True, slots=True)
class Matrix:
    """A sum of 4-bit matrices, and a bias."""

    parts: tuple[Quantized, ...]
    bias: Floats | None = None

    @property
    def rows(self) -> int:
        return len(self.parts[0].packed)


class Weights:
    """Reads a file's tensors and quantises its matrices."""

    def __init__(
        self,
        file: GgufFile,
        layers: int,
        group_size: int,
        importance: Mapping[str, Floats],
        on_matrix: Callable[[int], None],
    ) -> None:
        """`importance` of linear layers' inputs goes by the layers' names; `on_matrix` hears each size."""
        self._file = file
        self._group_size = group_size
        self._edges = ("blk.0.", f"blk.{layers - 1}.")
        self._importance = importance
        self._on_matrix = on_matrix
        self._head: Matrix | None = None

    def __contains__(self, name: str) -> bool:
        return name in self._file

    def vector(self, name: str, order: Order | None = None) -> Floats:
        values = self._file.read(name)
        return values if order is None else values[order]

    def linear(self, name: str, order: Order | None = None) -> Matrix:
        """A linear layer, its rows in the given order."""
        bias = self.vector(f"{name}.bias", order) if f"{name}.bias" in self else None
        if self._is_sensitive(name):
            return replace(self._precise(name, order), bias=bias)
        return Matrix((self._quantize(name, order),), bias)

    def _is_sensitive(self, name: str) -> bool:
        """Where errors cost the most, weight for weight: at both ends, and in the values attention mixes."""
        return name.startswith(self._edges) or name.endswith("attn_v")

    def embedding(self) -> Matrix:
        """The table of the tokens' vectors."""
        return Matrix((self._quantize(EMBEDDING),)) if f"{HEAD}.weight" in self else self.head()

    def head(self) -> Matrix:
        """What turns the last vector into logits; many models use the embedding table again."""
        if self._head is None:
            self._head = self._precise(HEAD if f"{HEAD}.weight" in self else EMBEDDING)
        return self._head

    def _precise(self, name: str, order: Order | None = None) -> Matrix:
        """A matrix in twice the bits: what the first four leave over is quantised again."""
        coarse = self._quantize(name, order)
        return Matrix((coarse, self._quantize(name, order, coarse)))

    def _quantize(self, name: str, order: Order | None = None, taken: Quantized | None = None) -> Quantized:
        """A matrix, its rows in the given order; or what is left of it when `taken` is taken away."""
        tensor = f"{name}.weight"
        rows, width = self._file.shape(tensor)

        def read(block: slice) -> Floats:
            values = self._file.read(tensor, block if order is None else order[block])
            return values if taken is None else values - taken.dequantize(block)

        result = quantize(rows, width, self._group_size, read, self._importance.get(name))
        self._on_matrix(rows * width)
        return result
