"""Record the commands of the next call while the GPU runs this one.

WebGPU submits recorded commands only once, so they cannot be replayed. But the calls of a decode loop differ
only in parameters and inputs, which are written apart from the commands. So the same commands are recorded
again as soon as they are submitted, and the next call finds them ready.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from pteron.engine.devices.device import Command, Copy, Device, Recorded, Submission
from pteron.errors import PteronError

WORTH_RECORDING = 16  # commands: fewer are recorded in less time than it takes to drop them unused


class RecordAhead:
    """Submits the calls of one state. It records ahead if a call repeats the one before it.

    The caller holds the device's lock. An interrupt at any line loses at most a recording.
    """

    def __init__(self) -> None:
        self._last: Any = None  # what the last call was
        self._recorded: Recorded = None  # the same once more

    def submit(
        self, device: Device, version: int, commands: Sequence[Command], after: Sequence[Copy]
    ) -> Submission:
        """Kernels, then copies to a staging buffer. Equal versions mean equal commands."""
        call = version, list(after)
        recorded, self._recorded = self._recorded, None
        repeats, self._last = call == self._last, call
        if not (repeats and device.can_record):
            return device.submit((), commands, after)
        if recorded is None:
            submission = device.submit((), commands, after)
        else:
            submission = device.submit_recorded(recorded)
        if len(commands) >= WORTH_RECORDING:
            with suppress(PteronError):  # this call was submitted; the next one records again, and raises it
                self._recorded = device.record(commands, after)
        return submission
