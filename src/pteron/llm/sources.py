"""Where models come from: GGUF files, and folders of Hugging Face."""

from __future__ import annotations

from pathlib import Path

from pteron.errors import UnsupportedError
from pteron.llm.architectures.checkpoint import Checkpoint, EncoderCheckpoint
from pteron.llm.gguf.open_gguf import open_gguf
from pteron.llm.hf.folder import open_folder


def open_checkpoint(path: Path) -> Checkpoint | EncoderCheckpoint:
    return open_folder(path) if path.is_dir() else open_gguf(path)


def open_decoder(path: Path) -> Checkpoint:
    found = open_checkpoint(path)
    if isinstance(found, EncoderCheckpoint):
        raise UnsupportedError(f"{path}: {found.config.name} is an embedder, not a language model")
    return found
