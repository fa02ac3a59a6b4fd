"""What `pteron.export` adds to a file: JSON in named data entries, with an object for each method."""

from __future__ import annotations

import json
from typing import Any

from pteron.errors import FormatError
from pteron.pte.file import ProgramFile


def stored_json(file: ProgramFile, key: str, method: str | None) -> dict[str, Any]:
    """The object of a method in an entry. It is empty if there is none."""
    if not any(item.key == key for item in file.program.named_data):
        return {}
    try:
        entry = json.loads(bytes(file.named_data(key)))
    except (ValueError, RecursionError) as error:
        raise FormatError(f"program: {key} is not JSON: {error}") from error
    if not isinstance(entry, dict) or not all(isinstance(stored, dict) for stored in entry.values()):
        raise FormatError(f"program: {key} is not a JSON object of objects")
    found: dict[str, Any] = entry.get(method or "", {})
    return found
