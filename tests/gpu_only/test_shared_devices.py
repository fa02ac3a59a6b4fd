"""Programs on the same adapter share one open device."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pteron
from pteron.engine.devices import shared as sharing
from pteron.engine.devices.opening import Device
from tests.support.faults import lose

DATA = Path(__file__).parents[1] / "data"
FILE = DATA / "dyn_rms.pte"
X = np.ones((1, 1, 3, 64), np.float32)


@pytest.fixture(autouse=True)
def no_other_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin with no shared device: programs of other tests may still be open in this process."""
    monkeypatch.setattr(sharing, "_devices", sharing.SharedDevices())


def test_programs_share_a_device_until_the_last_is_closed() -> None:
    first, second = pteron.load(FILE), pteron.load(FILE)
    shared = first.device
    assert second.device is shared
    want = first(X)
    first.close()
    np.testing.assert_array_equal(second(X), want)
    second.close()
    with pytest.raises(pteron.PteronError):
        shared.check_usable()
        shared.storage(16, "after the last user")
    with pteron.load(FILE) as third:
        assert third.device is not shared
        np.testing.assert_array_equal(third(X), want)


def test_a_device_of_the_caller_is_not_shared(device: Device) -> None:
    with pteron.load(FILE, device=device) as own, pteron.load(FILE) as other:
        assert own.device is device and other.device is not device


def test_a_load_that_fails_gives_the_device_back() -> None:
    with pteron.load(FILE) as program:
        with pytest.raises(KeyError):
            pteron.load(FILE, methods=["backward"])
        with pytest.raises(ValueError, match="fusion pass"):
            pteron.load(FILE, fuse=["none such"])
        assert program(X).shape == X.shape
        program.device.check_usable()


def test_programs_on_a_lost_device_find_a_new_one_together() -> None:
    with pteron.load(FILE) as first, pteron.load(FILE) as second:
        want = first(X)
        lose(first.device)
        with pytest.raises(pteron.DeviceLost):
            first(X)
        first.reload()
        second.reload()
        assert first.device is second.device
        np.testing.assert_array_equal(second(X), want)
