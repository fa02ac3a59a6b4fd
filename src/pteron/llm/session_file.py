"""A conversation in a file.

0    "pteron session 1"
16   the length of the header, 8 bytes, little-endian
24   SHA-256 of everything after it
56   the header, as JSON: the model's digest, tokens, messages, the size of each block
...  blocks: the KV cache of the tokens

A file is not trusted: everything is checked before it is used.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from pteron.errors import FormatError, InputError
from pteron.pte.container import write_file

MAGIC = b"pteron session 1"
PREFIX = struct.Struct("<16sQ32s")
LONGEST_HEADER = 1 << 26


@dataclass(frozen=True, slots=True)
class SavedSession:
    model: str  # the digest of the model's file
    tokens: list[int]
    messages: list[dict[str, Any]]
    blocks: list[bytes]


def write_session(path: str | Path, saved: SavedSession) -> None:
    facts = {
        "model": saved.model,
        "tokens": saved.tokens,
        "messages": saved.messages,
        "sizes": [len(block) for block in saved.blocks],
    }
    try:
        header = json.dumps(facts, ensure_ascii=False).encode()
    except (TypeError, ValueError) as error:
        raise InputError(f"the messages cannot be saved: {error}") from error
    digest = hashlib.sha256(header)
    for block in saved.blocks:
        digest.update(block)
    write_file(path, [PREFIX.pack(MAGIC, len(header), digest.digest()), header, *saved.blocks])


def read_session(path: str | Path, model: str, sizes: Callable[[int], list[int]]) -> SavedSession:
    """Read a file that was saved with the same model.

    sizes: the size of each block for a number of tokens.
    """
    with Path(path).open("rb") as file:
        try:
            return _read(file, model, sizes)
        except FormatError as error:
            raise FormatError(f"{path}: {error}") from error
        except InputError as error:
            raise InputError(f"{path}: {error}") from error


def _read(file: BinaryIO, model: str, sizes: Callable[[int], list[int]]) -> SavedSession:
    prefix = file.read(PREFIX.size)
    if len(prefix) < PREFIX.size or not prefix.startswith(MAGIC):
        raise FormatError("this is not a saved conversation")
    _, length, digest = PREFIX.unpack(prefix)
    if length > LONGEST_HEADER:
        raise FormatError(f"damaged: the header says that it has {length} bytes")
    header = file.read(length)
    facts = _facts(header)
    if facts["model"] != model:
        raise InputError("the conversation was saved with another model, or another conversion of it")
    if facts["sizes"] != sizes(len(facts["tokens"])):
        raise FormatError(
            "the KV cache does not have the size of this model's: the conversation was saved with another "
            "kv_dtype, or the file is damaged"
        )
    blocks = [file.read(size) for size in facts["sizes"]]
    actual = hashlib.sha256(header)
    for block in blocks:
        actual.update(block)
    if actual.digest() != digest or file.read(1):
        raise FormatError("damaged: the contents do not match the checksum")
    return SavedSession(model, facts["tokens"], facts["messages"], blocks)


def _facts(header: bytes) -> dict[str, Any]:
    try:
        facts = json.loads(header)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"damaged: the header is not JSON: {error}") from error
    good = (
        isinstance(facts, dict)
        and isinstance(facts.get("model"), str)
        and _is_list(facts, "tokens", lambda token: type(token) is int)
        and _is_list(facts, "sizes", lambda size: type(size) is int)
        and _is_list(facts, "messages", lambda m: isinstance(m, dict) and isinstance(m.get("role"), str))
    )
    if not good:
        raise FormatError("damaged: the header does not have the expected fields")
    return dict(facts)


def _is_list(facts: dict[str, Any], name: str, good: Callable[[Any], bool]) -> bool:
    return isinstance(facts.get(name), list) and all(map(good, facts[name]))
