"""The fastest route of each node: measured once, stored in a file, used by every load.

An operator with several kernels lists its routes in a default order. A measurement on this device overrides
the order: of the node itself, or of similar nodes in a report (see `lessons`). For the files see
`adapter_notes`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import log
from pathlib import Path
from typing import TypeAlias

from pteron.gpu.wgpu.adapters import Adapter
from pteron.measure.adapter_notes import AdapterNotes, identity
from pteron.measure.lessons import Lessons
from pteron.plan.routes import LiveShapes

# The name of the best route, by node key and number of output elements.
Best: TypeAlias = dict[str, dict[int, str]]

NODES = AdapterNotes("tuning.json")  # measurements of nodes
LESSONS = AdapterNotes("lessons.json")  # what was learned from reports


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


# -- the files -------------------------------------------------------------------------------------


def read(adapter: Adapter) -> Tuning | None:
    """The measurements on this adapter with the current kernels; None if there are none."""
    best: Best = {}
    lessons = Lessons()
    with suppress(AttributeError, TypeError, ValueError):  # `write` did not write this: ignore it
        best = {
            key: {int(size): str(route) for size, route in sizes.items()}
            for key, sizes in NODES.read(identity(adapter)).items()
        }
    with suppress(AttributeError, TypeError, ValueError, LookupError):
        lessons = Lessons.from_json(LESSONS.read(identity(adapter)))
    return Tuning(best, lessons) if best or lessons else None


def write(adapter: Adapter, best: Best) -> Path:
    """Add measurements to the file. Those of other programs stay. Raises OSError."""
    found = NODES.read(identity(adapter))
    entries = found if isinstance(found, dict) else {}
    entries.update({key: {str(size): route for size, route in sizes.items()} for key, sizes in best.items()})
    return NODES.write(identity(adapter), entries)


def write_lessons(device: str, lessons: Lessons) -> Path:
    """Replace what is known from reports about a device, by its identity. Raises OSError."""
    return LESSONS.write(device, lessons.as_json())
