"""A model as its makers published it: what it is, its tensors, and its vocabulary."""

from __future__ import annotations

from dataclasses import dataclass

from pteron.llm.architectures.config import Config
from pteron.llm.architectures.encoders import EncoderConfig, encoder_layout
from pteron.llm.architectures.layout import check_tensors, decoder_layout
from pteron.llm.architectures.model_vocabulary import Vocabulary
from pteron.llm.architectures.tensors import Tensors


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A decoder."""

    config: Config
    tensors: Tensors
    vocabulary: Vocabulary

    def __post_init__(self) -> None:
        check_tensors(self.tensors, decoder_layout(self.config))


@dataclass(frozen=True, slots=True)
class EncoderCheckpoint:
    config: EncoderConfig
    tensors: Tensors
    vocabulary: Vocabulary

    def __post_init__(self) -> None:
        check_tensors(self.tensors, encoder_layout(self.config, self.tensors))
