"""Converted models, kept in a folder: a model is converted once, and found again by its contents."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pteron._util import user_cache
from pteron._util.progress import Progress
from pteron.errors import InputError
from pteron.llm.context_choice import file_facts
from pteron.llm.gguf.convert import DEFAULT_LENGTHS, SHARED_CALL, convert_for_any_context
from pteron.llm.hf.settings import folder_name
from pteron.pte.container import write_file

# Of what the converter writes. Raise it when it writes other files, or the old ones are used further. A test
# notices when it does (tests/llm/converted_files.py).
VERSION = 1
LIMIT, LIMIT_VARIABLE = 20.0, "PTERON_CACHE_GIB"  # the least recently used go when more is kept
# Contexts of up to this many tokens share one program. Its tables for rotary embeddings have that many rows.
LONGEST_SHARED = 32768
MODEL_FILES = ("*.json", "*.jinja", "*.safetensors", "*_Pooling/*.json")  # of a Hugging Face folder
AT_ONCE = 1 << 22  # bytes that are read at a time


@dataclass(frozen=True, slots=True)
class Entry:
    """A model in the cache."""

    path: Path
    nbytes: int
    used: float  # when, in seconds since 1970


def folder() -> Path:
    return user_cache.folder() / "models"


def converted(
    model: str | Path,
    *,
    max_context: int | None = None,
    max_call: int | None = None,
    progress: Progress | None = None,
) -> Path:
    """The `.pte` program of a GGUF file or a Hugging Face folder: from the cache, or converted into it.

    Only a context or a call that is longer than usual, or other frequencies, need another program.
    """
    source = Path(model)
    call = max(SHARED_CALL, _power_of_two(max_call or 1))
    target = _converted(source, call, LONGEST_SHARED, DEFAULT_LENGTHS[1], progress)
    if max_context is not None and not file_facts(target).fits(max_context):
        longer = _power_of_two(max_context)
        target = _converted(source, call, longer, longer, progress)
    return target


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()


def _converted(source: Path, call: int, tables: int, rotary: int, progress: Progress | None) -> Path:
    """A program for contexts of up to `tables` tokens. See `convert_for_any_context`."""
    is_folder = source.is_dir()
    known = folder_contents(source) if is_folder else contents(source)
    key = hashlib.sha256(f"{known} {call} {tables} {rotary} {VERSION}".encode()).hexdigest()[:16]
    target = folder() / f"{folder_name(source) if is_folder else source.stem}-{key}.pte"
    if target.exists():
        os.utime(target)
    else:
        folder().mkdir(parents=True, exist_ok=True)
        convert_for_any_context(source, target, call=call, tables=tables, rotary=rotary, progress=progress)
        trim(keep=target)
    return target


def entries() -> list[Entry]:
    """All that is kept, the most recently used first."""
    found = []
    for path in folder().glob("*.pte"):
        with suppress(FileNotFoundError):  # another process may clear the cache
            facts = path.stat()
            found.append(Entry(path, facts.st_size, facts.st_mtime))
    return sorted(found, key=lambda entry: entry.used, reverse=True)


def clear() -> int:
    """Remove everything; the number of bytes that this frees."""
    removed = entries()
    for entry in removed:
        entry.path.unlink(missing_ok=True)
    _digests().unlink(missing_ok=True)
    return sum(entry.nbytes for entry in removed)


def trim(keep: Path) -> None:
    """Remove the least recently used models beyond the limit, but never `keep`."""
    room = limit()
    for entry in entries():
        room -= entry.nbytes
        if room < 0 and entry.path != keep:
            entry.path.unlink(missing_ok=True)


def limit() -> int:
    """The most bytes that are kept."""
    text = os.environ.get(LIMIT_VARIABLE, LIMIT)
    try:
        return int(float(text) * (1 << 30))
    except (ValueError, OverflowError):
        raise InputError(f"{LIMIT_VARIABLE} must be a number of GiB, not {text!r}") from None


# -- the contents of files -------------------------------------------------------------------------


def folder_contents(folder: Path) -> str:
    """The digest of a model in several files."""
    found = [path for kind in MODEL_FILES for path in sorted(folder.glob(kind)) if path.is_file()]
    return " ".join(f"{path.relative_to(folder)} {contents(path)}" for path in found)


def contents(path: Path) -> str:
    """The digest of a file. It is remembered: a large file is not read again while it is as it was."""
    facts = path.stat()
    name, state = str(path.resolve()), [facts.st_size, facts.st_mtime_ns]
    known = _read_digests()
    if (entry := known.get(name)) and entry[:2] == state:
        return str(entry[2])
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(AT_ONCE):
            digest.update(piece)
    folder().mkdir(parents=True, exist_ok=True)
    write_file(_digests(), [json.dumps({**known, name: [*state, digest.hexdigest()]}).encode()])
    return digest.hexdigest()


def _digests() -> Path:
    return folder() / "digests.json"


def _read_digests() -> dict[str, Any]:
    """What is remembered. A file that cannot be read is as good as none."""
    with suppress(OSError, ValueError):
        known = json.loads(_digests().read_text("utf-8"))
        if isinstance(known, dict):
            return {
                path: entry for path, entry in known.items() if isinstance(entry, list) and len(entry) == 3
            }
    return {}
