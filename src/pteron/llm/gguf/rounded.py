"""Weights that are rounded when a model is converted: floats become codes of 8 or 4 bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from pteron.errors import UnsupportedError
from pteron.llm.architectures.tensors import Floats, Tensors
from pteron.llm.gguf.affine_rounding import round_affine
from pteron.llm.gguf.codes import Coded, code, joined
from pteron.llm.gguf.exact import CodedMatrix, ExactWeights
from pteron.llm.gguf.weights import EMBEDDING, HEAD

Rounding = Literal["8bit", "4bit"]
BITS: dict[str, int] = {"8bit": 8, "4bit": 4}
GROUP = 32  # weights that share a scale and a minimum


class RoundedWeights(ExactWeights):
    """As ExactWeights, but floats are rounded. What a file has in a block format stays as it is."""

    def __init__(self, tensors: Tensors, rounding: Rounding, on_matrix: Callable[[int], None]) -> None:
        super().__init__(tensors, on_matrix)
        self._bits = BITS[rounding]
        self._squares = self._errors = 0.0  # of weights, and of how much they differ from the file's

    @property
    def description(self) -> str:
        edges = "; 8 in the embedding and the head" if self._bits < 8 else ""
        return f"{self._bits} bits, groups of {GROUP}{edges}"

    @property
    def rounding(self) -> float:
        return float(np.sqrt(self._errors / max(self._squares, 1e-30)))

    def _of_floats(self, tensor: str, blocks: list[Any], bias: Floats | None) -> CodedMatrix:
        width = self._tensors.shape(tensor)[-1]
        if width % GROUP:
            raise UnsupportedError(
                f"{self._tensors.name}: tensor {tensor!r} has rows of {width} weights, not whole "
                f"groups of {GROUP}"
            )
        # Errors in these cost the most: every token passes through both.
        bits = 8 if tensor.startswith((EMBEDDING, HEAD)) else self._bits
        return CodedMatrix(joined([self._rounded(tensor, block, bits) for block in blocks]), bias)

    def _rounded(self, tensor: str, block: Any, bits: int) -> Coded:
        values = self._tensors.read(tensor, block)
        made = code(round_affine(values, bits, GROUP))
        self._squares += float(np.square(values).sum(dtype=np.float64))
        self._errors += float(np.square(values - made.dequantize()).sum(dtype=np.float64))
        return made
