"""A model as a reference for comparisons: its own numbers in numpy, whatever Pteron makes of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from pteron.llm.architectures.tensors import Floats
from pteron.llm.gguf.numpy_operators import reference
from pteron.llm.sources import open_decoder


class SourcePredictor:
    def __init__(self, path: Path, precision: str = "float32") -> None:
        self._precision = precision
        self._checkpoint = open_decoder(path)
        config = self._checkpoint.config
        self.vocab_size = config.vocabulary
        self.context_length = config.context

    def encode(self, text: str) -> list[int]:
        return list(self._checkpoint.vocabulary.tokenizer.encode(text).ids)

    def rows(self, tokens: Sequence[int], step: int = 1) -> Iterator[Floats]:
        checkpoint = self._checkpoint
        rows = reference(checkpoint.config, checkpoint.tensors, tokens, self._precision).logits()
        return iter(rows[step - 1 :: step])

    def __enter__(self) -> SourcePredictor:
        return self

    def __exit__(self, *exception: object) -> None:
        pass
