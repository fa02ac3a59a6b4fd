"""The fastest route of each node: measured once, stored in a file, used by every load.

An operator with several kernels lists its routes in a default order. A measurement on this device overrides
the order: of the node itself, or of similar nodes in a report (see `lessons`). Entries are stored by adapter,
driver and kernel text: after an update of one of these, an old entry is not used.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from math import log
from pathlib import Path
from typing import Any, TypeAlias

from pteron import user_cache
from pteron.gpu.wgpu.adapters import Adapter
from pteron.measure.lessons import Lessons
from pteron.plan.routes import LiveShapes
from pteron.pte.container import write_file

# The name of the best route, by node key and number of output elements.
Best: TypeAlias = dict[str, dict[int, str]]


class Tuning:
    """Chooses routes by measurements.

    A node that was measured itself uses the route of the measured size nearest to its live size. Another node
    uses what a report says about similar nodes.
    """

    def __init__(self, best: Best, lessons: Lessons | None = None) -> None:
        self.best = best
        self.lessons = lessons or Lessons()

    def knows(self, key: str) -> bool:
        """Whether a measurement, of this node or of similar ones, decides about the node."""
        return key in self.best or self.lessons.cover(key)

    def keeps(self, key: str, route: str) -> bool:
        measured = self.best.get(key)
        return route in (measured.values() if measured else self.lessons.routes(key))

    def prefers(self, key: str, live: LiveShapes, fitting: Sequence[str]) -> str:
        measured = self.best.get(key)
        preferred = _nearest(measured, live.size) if measured else self.lessons.nearest(key, live)
        return preferred if preferred is not None and preferred in fitting else fitting[0]


def _nearest(measured: Mapping[int, str], size: int) -> str:
    return measured[min(measured, key=lambda other: abs(log(max(other, 1)) - log(max(size, 1))))]


# -- the file --------------------------------------------------------------------------------------


def cache_path() -> Path:
    """The file with measurements of nodes."""
    return user_cache.folder() / "tuning.json"


def lessons_path() -> Path:
    """The file with what was learned from reports."""
    return user_cache.folder() / "lessons.json"


def read(adapter: Adapter) -> Tuning | None:
    """The measurements on this adapter with the current kernels; None if there are none."""
    identity = identity_of(adapter.name, adapter.backend, adapter.driver)
    best: Best = {}
    lessons = Lessons()
    with suppress(AttributeError, TypeError, ValueError):  # `write` did not write this: ignore it
        best = {
            key: {int(size): str(route) for size, route in sizes.items()}
            for key, sizes in _read_all(cache_path()).get(identity, {}).items()
        }
    with suppress(AttributeError, TypeError, ValueError, LookupError):
        lessons = Lessons.from_json(_read_all(lessons_path()).get(identity, []))
    return Tuning(best, lessons) if best or lessons else None


def write(adapter: Adapter, best: Best) -> Path:
    """Add measurements to the file. Those of other devices and programs stay.

    Raises OSError, with the file's name, if it cannot be written.
    """
    identity = identity_of(adapter.name, adapter.backend, adapter.driver)
    found = _read_all(cache_path()).get(identity)
    mine = found if isinstance(found, dict) else {}
    mine.update({key: {str(size): route for size, route in sizes.items()} for key, sizes in best.items()})
    return _write(cache_path(), identity, mine)


def write_lessons(identity: str, lessons: Lessons) -> Path:
    """Replace what is known from reports about one device. Raises OSError, as `write`."""
    return _write(lessons_path(), identity, lessons.as_json())


def _write(path: Path, identity: str, entry: Any) -> Path:
    everything = _read_all(path) | {identity: entry}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, [json.dumps(everything, indent=1, ensure_ascii=False).encode()])
    return path


def _read_all(path: Path) -> dict[str, Any]:
    """The whole file. It is a cache: a file that cannot be read counts as empty."""
    with suppress(OSError, ValueError, RecursionError):
        found = json.loads(path.read_text("utf-8"))
        if isinstance(found, dict):
            return found
    return {}


def identity_of(name: str, backend: str, driver: str) -> str:
    """What measurements are valid for: a device, its driver, and the current kernels."""
    return f"{name}; {backend}; {driver}; kernels {kernel_version()}"


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
