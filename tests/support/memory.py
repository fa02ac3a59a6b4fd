"""The memory of a loaded method: poison before a call, and a check that calls allocate nothing."""

from __future__ import annotations

from typing import Any

from pteron.method import Method

POISON = b"\xff"  # NaN as float32 or float16, and out of range as an index


def poison(method: Method) -> None:
    """Fill all activation buffers, so that a read of memory that this call did not write fails a test."""
    for buffer in method._executor.activations:
        method.device.write(buffer, 0, POISON * buffer.size)


class Made:
    """The GPU resources of a method at load. Calls must not create more."""

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
