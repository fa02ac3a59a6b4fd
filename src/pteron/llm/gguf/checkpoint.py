"""A model as its makers published it: what it is, its tensors, and its vocabulary."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pteron.llm.architectures.config import Config
from pteron.llm.architectures.tensors import Tensors
from pteron.llm.gguf.facts import config_from_gguf
from pteron.llm.gguf.source import GgufFile
from pteron.llm.gguf.vocabulary import Vocabulary, read_vocabulary


@dataclass(frozen=True, slots=True)
class Checkpoint:
    config: Config
    tensors: Tensors
    vocabulary: Vocabulary


def open_gguf(path: Path) -> Checkpoint:
    file = GgufFile(path)
    return Checkpoint(config_from_gguf(file), file, read_vocabulary(file))
