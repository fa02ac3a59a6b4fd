"""A check that calls allocate nothing."""

from __future__ import annotations

from typing import Any

from pteron.api.method import Method
from pteron.engine.call import POISON


class Made:
    """The GPU resources of a method at load. Calls must not create more."""

    def __init__(self, method: Method) -> None:
        self.method = method
        self.at_load = self._now()

    def _now(self) -> tuple[Any, ...]:
        executor, device = self.method._executor, self.method.device
        staging = sorted(executor.staging.buffers, key=id)  # they change places: the last used is the last
        buffers = [*executor.activations, executor.params.buffer, *staging]
        states = self.method._state().buffers
        groups = [site.group for site in executor.sites]
        identities = [id(thing) for thing in (*buffers, *states, *groups)]
        return device.allocations, device.compilations, identities

    def check_unchanged(self) -> None:
        assert self._now() == self.at_load, "a call allocated, compiled or exchanged something"


def poison(method: Method) -> None:
    """Fill all activations, so that a read of memory that a call did not write gives a wrong result."""
    for buffer in method._executor.activations:
        method.device.write(buffer, 0, POISON * buffer.size)
