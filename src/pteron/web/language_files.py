"""The files of a language model beside its frozen program: its tokenizer, and facts for the chat page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pteron.llm
from pteron.engine.devices.recording import RecordingDevice
from pteron.llm.companions import TOKENIZER
from pteron.llm.embedder import is_embedder
from pteron.pte.file import ProgramFile

FACTS, TOKENIZER_FILE = "language.json", "tokenizer.json"


def is_language_model(program: Path) -> bool:
    """Whether a `.pte` program has a tokenizer, inside or beside it, and generates text."""
    if is_embedder(program):
        return False
    if (program.parent / TOKENIZER_FILE).is_file():
        return True
    with ProgramFile.open(program) as file:
        return any(item.key == TOKENIZER for item in file.program.named_data)


def write_language_files(program: Path, folder: Path, name: str, **options: Any) -> None:
    """Write the tokenizer and the facts. The options are those of `pteron.llm.load`."""
    with pteron.llm.load(program, device=RecordingDevice(), **options) as model:
        facts = {
            "name": name,
            "chat_template": model.chat_template.source if model.chat_template else None,
            "control_tokens": model.chat_template.control_tokens if model.chat_template else [],
            "special_tokens": model.special_tokens,
            "text_start": model.text_start,
            "eos_ids": sorted(model.eos_ids),
            "context_length": model.context_length,
        }
        (folder / TOKENIZER_FILE).write_text(model.tokenizer.definition, encoding="utf-8")
    (folder / FACTS).write_text(json.dumps(facts), encoding="utf-8")
