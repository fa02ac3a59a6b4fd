"""The fastest route of each node: measured once, stored in a file, used by every load.

An operator with several kernels lists its routes in a default order. A measurement of a node on this device
overrides the order. For the file see `device_cache`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import log
from pathlib import Path
from typing import TypeAlias

from pteron.compiler.plan.routes import LiveShapes
from pteron.engine.devices.adapter import Adapter
from pteron.engine.measured.device_cache import DeviceCache, identity

# The name of the best route, by node key and number of output elements.
Best: TypeAlias = dict[str, dict[int, str]]

NODES = DeviceCache("tuning.json")


class Tuning:
    """Chooses the route that was the fastest at the measured size nearest to the live size."""

    def __init__(self, best: Best) -> None:
        self.best = best

    def knows(self, key: str) -> bool:
        """Whether the node was measured."""
        return key in self.best

    def keeps(self, key: str, route: str) -> bool:
        return route in self.best.get(key, {}).values()

    def prefers(self, key: str, live: LiveShapes, fitting: Sequence[str]) -> str:
        measured = self.best.get(key)
        preferred = _nearest(measured, live.size) if measured else fitting[0]
        return preferred if preferred in fitting else fitting[0]


def _nearest(measured: Mapping[int, str], size: int) -> str:
    return measured[min(measured, key=lambda other: abs(log(max(other, 1)) - log(max(size, 1))))]


def read(adapter: Adapter) -> Tuning | None:
    """Return the measurements on this adapter with the current kernels; None if there are none."""
    best: Best = {}
    with suppress(AttributeError, TypeError, ValueError):  # `write` did not write this: ignore it
        best = {
            key: {int(size): str(route) for size, route in sizes.items()}
            for key, sizes in NODES.read(identity(adapter)).items()
        }
    return Tuning(best) if best else None


def write(adapter: Adapter, best: Best) -> Path:
    """Add measurements to the file. Those of other programs stay. Raises OSError."""
    found = NODES.read(identity(adapter))
    entries = found if isinstance(found, dict) else {}
    entries.update({key: {str(size): route for size, route in sizes.items()} for key, sizes in best.items()})
    return NODES.write(identity(adapter), entries)
