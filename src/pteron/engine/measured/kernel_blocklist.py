"""The result of `pteron doctor --thorough` for an adapter: which routes compute wrong results on it.

Every load reads it, and avoids these routes (see `device_cache` for the file).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from pteron.engine.devices.adapter import Adapter
from pteron.engine.measured.device_cache import DeviceCache, identity

NOTES = DeviceCache("examined.json")


@dataclass(frozen=True, slots=True)
class Examined:
    day: str  # such as 2026-11-16
    results: int  # the number of results that were compared
    wrong: Mapping[str, Sequence[str]]  # the labels of wrong routes, and the operators that showed it


def read(adapter: Adapter) -> Examined | None:
    """None: this adapter was not examined, or with another driver or other kernels."""
    entry = NOTES.read(identity(adapter))
    with suppress(AttributeError, KeyError, TypeError, ValueError):  # `write` did not write this: ignore it
        wrong = {str(label): tuple(map(str, names)) for label, names in entry["wrong"].items()}
        return Examined(str(entry["day"]), int(entry["results"]), wrong)
    return None


def write(adapter: Adapter, found: Examined) -> Path:
    """Remember the result. Raises OSError if the file cannot be written."""
    return NOTES.write(identity(adapter), asdict(found))


def forget(adapter: Adapter) -> None:
    NOTES.write(identity(adapter), None)
