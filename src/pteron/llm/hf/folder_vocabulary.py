"""The vocabulary of a Hugging Face folder: tokenizer.json, and the files that name its special tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from pteron.errors import FormatError, InputError
from pteron.llm.architectures.model_vocabulary import ENDINGS, Vocabulary
from pteron.llm.hf.safetensors import read_json
from pteron.llm.hf.settings import Settings

TOKENIZER = "tokenizer.json"


def read_folder_vocabulary(folder: Path, settings: Settings) -> Vocabulary:
    tokenizer = _tokenizer(folder / TOKENIZER)
    named = _optional(folder / "tokenizer_config.json")
    generation = _optional(folder / "generation_config.json")
    ids = tokenizer.get_vocab(with_added_tokens=True)
    known = set(ids.values())

    def having(role: str) -> list[int]:
        """The tokens of a role, by number or by text."""
        stated = [*generation.integers(f"{role}_token_id"), *settings.integers(f"{role}_token_id")]
        text = _text(named.entries.get(f"{role}_token"))
        found = stated if text is None or text not in ids else [*stated, ids[text]]
        return [each for each in found if each in known]

    special = {added.content for added in tokenizer.get_added_tokens_decoder().values() if added.special}
    endings = [ids[text] for text in ENDINGS if text in special]
    return Vocabulary(
        bos=next(iter(having("bos")), None),
        eos=tuple(dict.fromkeys([*having("eos"), *endings])),
        padding=next(iter(having("pad")), None),
        add_bos=False,  # the tokenizer adds it
        chat_template=_chat_template(folder, named, "default"),
        tool_template=_chat_template(folder, named, "tool_use"),
        tokenizer=tokenizer,
    )


def _tokenizer(path: Path) -> Tokenizer:
    if not path.is_file():
        raise InputError(
            f"{path} is missing. Older formats of tokenizers, such as tokenizer.model, are not supported: "
            "load the tokenizer with transformers and save it again"
        )
    text = path.read_text("utf-8", errors="replace")
    try:
        tokenizer = Tokenizer.from_str(text)
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:  # a panic in the library is a BaseException
        raise FormatError(f"{path}: the tokenizer cannot be read: {error}") from None
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def _optional(path: Path) -> Settings:
    return Settings(read_json(path) if path.is_file() else {}, str(path))


def _text(token: Any) -> str | None:
    """A token is its text, or an object that has it."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None


def _chat_template(folder: Path, named: Settings, name: str) -> str | None:
    """A template of a folder by its name. A template without a name is the default."""
    is_default = name == "default"
    path = folder / ("chat_template.jinja" if is_default else f"additional_chat_templates/{name}.jinja")
    if path.is_file():
        return path.read_text("utf-8", errors="replace")
    stated = named.entries.get("chat_template")
    if isinstance(stated, list):  # several, with names
        named_ones = [each for each in stated if isinstance(each, dict)]
        stated = next((each.get("template") for each in named_ones if each.get("name") == name), None)
    elif not is_default:
        return None
    return stated if isinstance(stated, str) else None
