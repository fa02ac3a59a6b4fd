"""What belongs to a model besides its program: tokenizer, chat templates, description."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pteron.api.program import Program
from pteron.errors import FormatError, InputError
from pteron.llm.bounded import Worker
from pteron.llm.decoder import Decoder
from pteron.llm.tokenizer import Tokenizer, special_tokens

TOKENIZER, TEMPLATE, DESCRIPTION = "pteron.tokenizer.json", "pteron.chat_template", "pteron.model.json"
TOOL_TEMPLATE = "pteron.chat_template.tool_use"


class Companions:
    """The other parts of a model: inside the file, or in the same folder."""

    def __init__(self, program: Program, path: Path | None) -> None:
        self._program = program
        self._folder = path.parent if path else None
        self.name = str(path or "the model")

    def _read(self, key: str, file: str) -> str | None:
        beside = self._folder / file if self._folder else None
        try:
            return bytes(self._program.file.named_data(key)).decode("utf-8")
        except FormatError:
            pass
        except UnicodeDecodeError as error:
            raise FormatError(f"{self.name}: {key} is not UTF-8 text: {error}") from error
        try:
            return beside.read_text(encoding="utf-8") if beside and beside.is_file() else None
        except UnicodeDecodeError as error:
            raise FormatError(f"{beside} is not UTF-8 text: {error}") from error

    def _entries(self, key: str, file: str) -> Mapping[str, Any]:
        """A JSON object; empty if there is none."""
        try:
            entries = json.loads(self._read(key, file) or "{}")
        except (ValueError, RecursionError) as error:
            raise FormatError(f"{self.name}: {key} is not JSON: {error}") from error
        if not isinstance(entries, dict):
            raise FormatError(f"{self.name}: {key} is not a JSON object")
        return entries

    def tokenizer(self, worker: Worker) -> Tokenizer:
        definition = self._read(TOKENIZER, "tokenizer.json")
        if definition is None:
            raise InputError(
                "no tokenizer in the file and no tokenizer.json beside it: name one with tokenizer= "
                "(--tokenizer FILE)"
            )
        return Tokenizer(definition, name=f"the tokenizer of {self.name}", worker=worker)

    def description(self) -> Mapping[str, Any]:
        """The description that the converter has stored."""
        return self._entries(DESCRIPTION, "pteron.model.json")

    def _config(self) -> Mapping[str, Any]:
        return self._entries("tokenizer_config.json", "tokenizer_config.json")

    def template(self) -> str | None:
        text = self._read(TEMPLATE, "chat_template.jinja")
        if text is not None:
            return text
        stated = self._config().get("chat_template")
        return stated if isinstance(stated, str) else self._named_template("default")

    def tool_template(self) -> str | None:
        """The template for conversations with tools, if the model has one of its own for them."""
        text = self._read(TOOL_TEMPLATE, "additional_chat_templates/tool_use.jinja")
        return text if text is not None else self._named_template("tool_use")

    def _named_template(self, name: str) -> str | None:
        stated = self._config().get("chat_template")
        entries = [e for e in stated if isinstance(e, dict)] if isinstance(stated, list) else []
        found = next((e.get("template") for e in entries if e.get("name") == name), None)
        return found if isinstance(found, str) else None

    def special_tokens(self, tokenizer: Tokenizer, decoder: Decoder) -> dict[str, str]:
        """The special tokens by name, for the template."""
        ids = {"bos_token": decoder.bos_id, "eos_token": min(decoder.eos_ids, default=None)}
        known = {name: tokenizer.token_of(i) for name, i in ids.items() if i is not None}
        return {name: text for name, text in known.items() if text} | special_tokens(self._config())
