"""One runner for every recording: load once, call at each live shape, compare with torch."""

from __future__ import annotations

from pteron.engine.devices.opening import Device
from tests.dynamic_shape.recording import Recording
from tests.support.calls import check_file


def replay(recording: Recording, device: Device) -> None:
    check_file(device, recording.program, recording.calls, recording.tolerance)
