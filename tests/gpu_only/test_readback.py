"""Reading results back: by the fast way and by the public one, from any thread, and after an error."""

import threading

import numpy as np
import pytest

import pteron
from pteron.gpu.wgpu import native, public


@pytest.fixture
def numbers(device):
    """A staging buffer on its way to hold 0..255."""
    buffer, staging = device.storage(1024, "numbers"), device.staging(1024, "numbers")
    device.write(buffer, 0, np.arange(256, dtype=np.int32))
    device.run((), (), [(buffer, 0, staging, 0, 1024)])
    yield staging
    device.free(buffer)
    device.free(staging)


def test_the_fast_way_is_there():
    assert native.AVAILABLE, "wgpu-py has moved what the fast way needs"


@pytest.mark.parametrize("calls", [native, public])
def test_both_ways_read_what_was_written(device, calls, monkeypatch):
    monkeypatch.setattr(device, "calls", calls)
    buffer, staging = device.storage(1024, "numbers"), device.staging(1024, "numbers")
    device.write(buffer, 0, np.arange(256, dtype=np.int32))
    device.run((), (), [(buffer, 0, staging, 0, 1024)])
    for count in (256, 2, 256):
        with device.mapped(staging, 4 * count) as data:
            np.testing.assert_array_equal(np.frombuffer(data, np.int32)[:count], np.arange(count))
    device.free(buffer)
    device.free(staging)


@pytest.mark.parametrize("calls", [native, public])
def test_what_the_gpu_refuses_is_an_error_and_the_next_run_works(device, numbers, calls, monkeypatch):
    monkeypatch.setattr(device, "calls", calls)
    small = device.storage(16, "small")
    with pytest.raises(pteron.DeviceError, match=r"run: (?s:.*)overrun"):
        device.run((), (), [(small, 0, numbers, 0, 1024)])
    with pytest.raises((pteron.DeviceError, ValueError)):
        device.write(small, 0, bytes(1024))
    device.write(small, 0, np.array([7, 8, 9, 10], np.int32))
    device.run((), (), [(small, 0, numbers, 0, 16)])
    with device.mapped(numbers, 16) as data:
        np.testing.assert_array_equal(np.frombuffer(data, np.int32)[:4], [7, 8, 9, 10])
    device.free(small)


def test_a_buffer_that_cannot_be_mapped_is_an_error_and_can_be_read_later(device, numbers):
    with (
        device.mapped(numbers, 1024),
        pytest.raises(pteron.DeviceError, match="read-back"),
        device.mapped(numbers, 1024),
    ):
        pass
    with device.mapped(numbers, 1024) as data:
        assert np.frombuffer(data, np.int32)[7] == 7


def test_threads_wait_for_their_own_buffers(device):
    failures = []

    def read(seed):
        values = np.random.default_rng(seed).integers(0, 1000, 256).astype(np.int32)
        buffer, staging = device.storage(1024, "mine"), device.staging(1024, "mine")
        for shift in range(20):
            device.write(buffer, 0, values + shift)
            device.run((), (), [(buffer, 0, staging, 0, 1024)])
            with device.mapped(staging, 1024) as data:
                if not np.array_equal(np.frombuffer(data, np.int32), values + shift):
                    failures.append((seed, shift))
        device.free(buffer)
        device.free(staging)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not failures and not any(thread.is_alive() for thread in threads)
