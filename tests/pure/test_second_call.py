"""A call at the shape of the call before writes its inputs, and no parameters."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pteron
from pteron.engine.devices.recording import RecordingDevice, Write
from tests.support import DATA


def writes(device: RecordingDevice, since: int) -> list[str]:
    """The kinds of buffers that were written since an event."""
    return [event.buffer.usage for event in device.events[since:] if isinstance(event, Write)]


@pytest.mark.parametrize("path", [DATA / "dyn_conv1d.pte", DATA / "dyn_rms.pte"], ids=lambda path: path.stem)
def test_the_second_call_writes_no_parameters(path: Path) -> None:
    device = RecordingDevice()
    method = pteron.load(path, device=device).method()
    whole = [np.zeros(info.max_shape, info.array_dtype) for info in method.inputs]
    smaller = [np.zeros(info.shape_at(3), info.array_dtype) for info in method.inputs]
    for inputs in (whole, smaller):
        method.execute(inputs)
        before = len(device.events)
        method.execute(inputs)
        assert set(writes(device, before)) == {"storage"}
    before = len(device.events)
    method.execute(whole)  # another shape
    assert "uniform" in writes(device, before)
