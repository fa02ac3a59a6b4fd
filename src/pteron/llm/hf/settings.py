"""The entries of a `config.json`, with their types checked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pteron.errors import FormatError, InputError
from pteron.llm.hf.safetensors import read_json

T = TypeVar("T")

CONFIG = "config.json"
LARGEST = 2**31 - 1  # of integers: more than any size of a model


def folder_name(folder: Path) -> str:
    """The name of the model in a folder. Folders in the cache of the hub are named after commits."""
    path = folder.resolve()
    repository = path.parents[1].name if path.parent.name == "snapshots" else ""  # models--org--name
    return repository.rpartition("--")[2] or path.name


class Settings:
    def __init__(self, entries: Mapping[str, Any], source: str) -> None:
        self.entries = entries
        self.source = source  # the file, for errors

    @classmethod
    def of_folder(cls, folder: Path) -> Settings:
        path = folder / CONFIG
        if not path.is_file():
            raise InputError(f"{folder}: a folder of Hugging Face has a {CONFIG}; this one has none")
        return cls(read_json(path), str(path))

    def find(self, kind: type[T], *names: str) -> T | None:
        """The first entry of these names that is there and is not null. Families use different names."""
        for name in names:
            value = self.entries.get(name)
            if value is None:
                continue
            if kind is float and isinstance(value, int):
                value = float(min(max(value, -LARGEST), LARGEST))
            if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
                raise FormatError(
                    f"{self.source}: {name!r} should be {kind.__name__}, not {type(value).__name__}"
                )
            if isinstance(value, int) and abs(value) > LARGEST:
                raise FormatError(f"{self.source}: {name!r} should be at most {LARGEST}")
            return value
        return None

    def get(self, kind: type[T], *names: str, default: T) -> T:
        found = self.find(kind, *names)
        return default if found is None else found

    def require(self, kind: type[T], *names: str) -> T:
        found = self.find(kind, *names)
        if found is None:
            raise FormatError(f"{self.source}: {names[0]!r} is missing")
        return found

    def part(self, name: str) -> Settings:
        """An entry that is an object; empty where there is none."""
        return Settings(self.get(dict, name, default={}), f"{self.source}, {name}")

    def integers(self, name: str) -> list[int]:
        """An entry that is an integer or a list of integers; empty where there is none."""
        value = self.entries.get(name)
        items = value if isinstance(value, list) else [] if value is None else [value]
        if not all(isinstance(item, int) and not isinstance(item, bool) for item in items):
            raise FormatError(f"{self.source}: {name!r} should be integers, not {str(value)[:80]}")
        return items
