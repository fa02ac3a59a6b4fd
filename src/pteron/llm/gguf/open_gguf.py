"""A model in a GGUF file."""

from __future__ import annotations

from pathlib import Path

from pteron.llm.architectures.checkpoint import Checkpoint, EncoderCheckpoint
from pteron.llm.architectures.encoders import ENCODERS
from pteron.llm.gguf.encoder_facts import encoder_config_from_gguf
from pteron.llm.gguf.facts import config_from_gguf
from pteron.llm.gguf.source import GgufFile
from pteron.llm.gguf.vocabulary import read_vocabulary


def open_gguf(path: Path) -> Checkpoint | EncoderCheckpoint:
    file = GgufFile(path)
    name = file.require("general.architecture", str)
    encoder = next((family for family in ENCODERS if family.name == name), None)
    if encoder is not None:
        return EncoderCheckpoint(encoder_config_from_gguf(file, encoder), file, read_vocabulary(file))
    return Checkpoint(config_from_gguf(file), file, read_vocabulary(file))
