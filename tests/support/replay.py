"""One runner for every recording: load once, call at each live shape, compare with torch."""

from __future__ import annotations

from typing import Any

import pteron
from pteron.devices import Device
from pteron.method import Method
from tests.dynamic_shape.recording import Recording
from tests.support.tolerances import assert_close

POISON = 0xFF  # as a float32 or float16 this is a NaN, as an index it is out of every range


def replay(recording: Recording, device: Device) -> None:
    """All calls of a recording on one loaded program, whose memory is poisoned before each of them."""
    with pteron.load(recording.program, device=device) as program:
        method = program.method()
        made = Made(method)
        for number, call in enumerate(recording.calls):
            poison(method)
            outputs = method.execute(call.inputs)
            check_outputs(
                outputs, call.outputs, recording.tolerance, f"{recording.folder.name}, call {number}"
            )
        made.check_unchanged()


def check_outputs(got: list[Any], want: list[Any], tolerance: float, what: str) -> None:
    assert len(got) == len(want), f"{what}: expected {len(want)} outputs, got {len(got)}"
    for index, (have, wanted) in enumerate(zip(got, want, strict=True)):
        assert_close(have, wanted, tolerance, f"{what}, output {index}")


def poison(method: Method) -> None:
    """Fill every activation buffer, so that a kernel which reads what this call did not write is seen."""
    device = method.device
    for buffer in method._executor.activations:
        device.write(buffer, 0, bytes([POISON]) * buffer.size)


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
