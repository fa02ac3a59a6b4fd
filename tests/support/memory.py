"""The memory of a loaded method: filled with poison before a call, and watched while calls run."""

from __future__ import annotations

from typing import Any

from pteron.method import Method

POISON = b"\xff"  # as a float32 or float16 this is a NaN, as an index it is out of every range


def poison(method: Method) -> None:
    """Fill every activation buffer, so that a kernel which reads what this call did not write is seen."""
    for buffer in method._executor.activations:
        method.device.write(buffer, 0, POISON * buffer.size)


class Made:
    """What a method had made when it was loaded. A call may make nothing more."""

    def __init__(self, method: Method) -> None:
        self.method = method
        self.at_load = self._now()

    def _now(self) -> tuple[Any, ...]:
        executor, device = self.method._executor, self.method.device
        buffers = [*executor.activations, executor.params.buffer, *executor.staging.buffers]
        states = list(self.method._state().buffers.values())
        groups = [site.group for site in executor.sites]
        identities = [id(thing) for thing in (*buffers, *states, *groups)]
        return device.allocations, device.compilations, identities

    def check_unchanged(self) -> None:
        assert self._now() == self.at_load, "a call allocated, compiled or exchanged something"
