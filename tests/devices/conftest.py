"""Proves a device: each test runs on every implementation of the protocol that this machine can open.

To prove another one, add a row to `OPENERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from pteron.engine.devices.opening import Device, open_device
from pteron.engine.devices.recording import RecordingDevice
from pteron.engine.devices.wgpu import native
from pteron.errors import DeviceError
from tests.support.missing import missing
from tests.support.needs import no_torch

__all__ = ["no_torch"]


def open_public() -> Device:
    """As with a version of wgpu-py that has other C functions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "AVAILABLE", False)
        return open_device()


OPENERS: dict[str, Callable[[], Device]] = {
    "native": open_device,
    "public": open_public,
    "recording": RecordingDevice,
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "device" in metafunc.fixturenames:
        is_real = "real" in metafunc.fixturenames
        names = [name for name in OPENERS if not (is_real and name == "recording")]
        metafunc.parametrize("device", names, indirect=True, scope="module")


@pytest.fixture(scope="module")
def device(request: pytest.FixtureRequest) -> Iterator[Device]:
    """A device of each kind."""
    try:
        device = OPENERS[request.param]()
    except DeviceError as error:
        missing(f"no GPU: {error}")
    yield device
    device.close()


@pytest.fixture
def fresh(device: Device) -> Iterator[Device]:
    """Another one, which the test may close or lose."""
    made = device.reopen()
    yield made
    made.close()


@pytest.fixture
def real() -> None:
    """Leave out the recording device, which keeps everything and computes nothing."""
