"""A GGUF file as a reference for comparisons: its own numbers in numpy, whatever Pteron makes of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from pteron.llm.gguf.config import read_config
from pteron.llm.gguf.layout import check_tensors
from pteron.llm.gguf.quantize import Floats
from pteron.llm.gguf.reference import Reference
from pteron.llm.gguf.source import GgufFile
from pteron.llm.gguf.vocabulary import read_vocabulary


class GgufPredictor:
    def __init__(self, path: Path) -> None:
        file = GgufFile(path)
        self._config = read_config(file)
        check_tensors(file, self._config)
        self._reference = Reference(self._config, file)
        self._tokenizer = read_vocabulary(file).tokenizer
        self.vocab_size = self._config.vocabulary
        self.context_length = self._config.context

    def encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text).ids)

    def rows(self, tokens: Sequence[int]) -> Iterator[Floats]:
        return iter(self._reference.logits(tokens))

    def __enter__(self) -> GgufPredictor:
        return self

    def __exit__(self, *exception: object) -> None:
        pass
