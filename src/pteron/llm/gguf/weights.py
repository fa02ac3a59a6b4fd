"""A model's weights, as operators take them: what a decoder is built from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Container
from typing import Protocol

from pteron.llm.architectures.tensors import Floats, Tensors
from pteron.llm.architectures.transformer import Rows
from pteron.llm.gguf.delegate_builder import DelegateBuilder, Value

EMBEDDING, HEAD = "token_embd", "output"


def head_name(names: Container[str]) -> str:
    """The linear layer that makes the logits. If the model has none, the table of the tokens does."""
    return HEAD if f"{HEAD}.weight" in names else EMBEDDING


class Matrix(Protocol):
    """A matrix [rows, width], in whatever form it is stored."""

    def product(self, g: DelegateBuilder, x: Value) -> Value:
        """x @ matrix^T, and the bias that belongs to it."""

    def lookup(self, g: DelegateBuilder, tokens: Value) -> Value:
        """The rows that the tokens name."""


class Weights(ABC):
    """A model's tensors. Its kinds differ in how they store matrices; vectors are always float32."""

    def __init__(self, tensors: Tensors) -> None:
        self._tensors = tensors

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    def vector(self, name: str) -> Floats:
        return self._tensors.read(name)

    def bias(self, name: str, rows: Rows | None = None) -> Floats | None:
        """The bias of a linear layer, where it has one."""
        if f"{name}.bias" not in self:
            return None
        values = self.vector(f"{name}.bias")
        return values if rows is None else values[rows]

    @property
    def is_tied(self) -> bool:
        """Whether the table of the tokens' vectors also turns the last vector into logits."""
        return head_name(self) == EMBEDDING

    @abstractmethod
    def linear(self, name: str, rows: Rows | None = None) -> Matrix:
        """A linear layer: all of its rows, or those given, in their order."""

    @abstractmethod
    def expert_product(self, g: DelegateBuilder, x: Value, name: str, chosen: Value) -> Value:
        """x @ matrix^T for the matrices of a tensor [experts, out, in] that `chosen` names."""

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
