"""A model's weights, as operators take them: what a decoder is built from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pteron.llm.gguf.delegate_builder import DelegateBuilder, Value
from pteron.llm.gguf.quantize import Floats
from pteron.llm.gguf.source import GgufFile

Order = NDArray[np.int64]
EMBEDDING, HEAD = "token_embd", "output"


class Matrix(Protocol):
    """A matrix [rows, width], in whatever form it is stored."""

    def product(self, g: DelegateBuilder, x: Value) -> Value:
        """x @ matrix^T, and the bias that belongs to it."""

    def lookup(self, g: DelegateBuilder, tokens: Value) -> Value:
        """The rows that the tokens name."""


class Weights(ABC):
    """A file's tensors. Its kinds differ in how they store matrices; vectors are always float32."""

    def __init__(self, file: GgufFile) -> None:
        self._file = file

    def __contains__(self, name: str) -> bool:
        return name in self._file

    def vector(self, name: str, order: Order | None = None) -> Floats:
        values = self._file.read(name)
        return values if order is None else values[order]

    def bias(self, name: str, order: Order | None = None) -> Floats | None:
        """The bias of a linear layer, where it has one."""
        return self.vector(f"{name}.bias", order) if f"{name}.bias" in self else None

    @property
    def is_tied(self) -> bool:
        """Whether the table of the tokens' vectors also turns the last vector into logits."""
        return f"{HEAD}.weight" not in self

    @abstractmethod
    def linear(self, name: str, order: Order | None = None) -> Matrix:
        """A linear layer, its rows in the given order."""

    @abstractmethod
    def embedding(self) -> Matrix:
        """The table of the tokens' vectors."""

    @abstractmethod
    def head(self) -> Matrix:
        """What turns the last vector into logits."""

    @property
    def rounding(self) -> float:
        """How much the stored weights differ from the file's, once they are made: a share of their size."""
        return 0.0

    @property
    @abstractmethod
    def description(self) -> str:
        """How the matrices are stored, for people."""
