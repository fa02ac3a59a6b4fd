"""The fastest route of each node: measured once, stored in a file, used by every load.

An operator with several kernels lists its routes in a default order. A measurement on this device overrides
the order. Entries are stored by adapter, driver and kernel text: after an update of one of these, an old
entry is not used.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from math import log
from pathlib import Path
from typing import Any, TypeAlias

from pteron import user_cache
from pteron.gpu.wgpu.adapters import Adapter
from pteron.pte.container import write_file

# The name of the best route, by node key and number of output elements.
Best: TypeAlias = dict[str, dict[int, str]]


class Tuning:
    """Chooses routes by measurements, at the measured size nearest to the live size."""

    def __init__(self, best: Best) -> None:
        self.best = best

    def keeps(self, key: str, route: str) -> bool:
        return route in self.best.get(key, {}).values()

    def prefers(self, key: str, size: int, fitting: Sequence[str]) -> str:
        measured = self.best.get(key)
        if measured:
            nearest = min(measured, key=lambda other: abs(log(max(other, 1)) - log(max(size, 1))))
            if measured[nearest] in fitting:
                return measured[nearest]
        return fitting[0]


# -- the file --------------------------------------------------------------------------------------


def cache_path() -> Path:
    return user_cache.folder() / "tuning.json"


def read(adapter: Adapter) -> Tuning | None:
    """The measurements on this adapter with the current kernels; None if there are none."""
    if not cache_path().exists():
        return None
    entries: Any = _read_all().get(_identity(adapter))
    with suppress(AttributeError, TypeError, ValueError):  # `write` did not write this: ignore it
        best = {
            key: {int(size): str(route) for size, route in sizes.items()} for key, sizes in entries.items()
        }
        return Tuning(best) if best else None
    return None


def write(adapter: Adapter, best: Best) -> Path:
    """Add measurements to the file. Those of other devices and programs stay.

    Raises OSError, with the file's name, if it cannot be written.
    """
    everything = _read_all()
    found = everything.get(_identity(adapter))
    mine = found if isinstance(found, dict) else {}
    mine.update({key: {str(size): route for size, route in sizes.items()} for key, sizes in best.items()})
    everything[_identity(adapter)] = mine
    path = cache_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, [json.dumps(everything, indent=1, ensure_ascii=False).encode()])
    return path


def _read_all() -> dict[str, Any]:
    """The whole file. It is a cache: a file that cannot be read counts as empty."""
    with suppress(OSError, ValueError, RecursionError):
        found = json.loads(cache_path().read_text("utf-8"))
        if isinstance(found, dict):
            return found
    return {}


def _identity(adapter: Adapter) -> str:
    return f"{adapter.name}; {adapter.backend}; {adapter.driver}; kernels {kernel_version()}"


@cache
def kernel_version() -> str:
    """A hash of all rules and kernels."""
    digest = hashlib.sha256()
    home = Path(__file__).parent.parent
    files = [p for folder in ("ops", "fusion") for p in (home / folder).rglob("*")]
    for path in sorted(p for p in files if p.suffix in (".py", ".wgsl")):
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
