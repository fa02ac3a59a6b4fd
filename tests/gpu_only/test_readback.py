"""Reading results back: with the native and the public functions, from any thread, and after an error."""

import threading

import numpy as np
import pytest

import pteron
from pteron.gpu.staging import read_back
from pteron.gpu.wgpu import native, public


def as_integers(data):
    return np.frombuffer(data, np.int32).copy()


@pytest.fixture
def numbers(device):
    """A buffer with the numbers 0..255."""
    buffer = device.storage(1024, "numbers")
    device.write(buffer, 0, np.arange(256, dtype=np.int32))
    yield buffer
    device.free(buffer)


def test_the_native_functions_are_found():
    assert native.AVAILABLE, "wgpu-py has moved what the fast way needs"


@pytest.mark.parametrize("calls", [native, public])
def test_native_and_public_functions_read_the_written_bytes(device, numbers, calls, monkeypatch):
    monkeypatch.setattr(device, "calls", calls)
    for count in (256, 2, 256):
        np.testing.assert_array_equal(read_back(device, numbers, 4 * count, as_integers), np.arange(count))


@pytest.mark.parametrize("calls", [native, public])
def test_a_gpu_error_is_raised_and_the_next_run_works(device, numbers, calls, monkeypatch):
    monkeypatch.setattr(device, "calls", calls)
    small = device.storage(16, "small")
    with pytest.raises(pteron.DeviceError, match=r"run: (?s:.*)overrun"):
        device.submit((), (), [(small, 0, numbers, 0, 1024)])
    with pytest.raises((pteron.DeviceError, ValueError)):
        device.write(small, 0, bytes(1024))
    device.write(small, 0, np.array([7, 8, 9, 10], np.int32))
    np.testing.assert_array_equal(read_back(device, small, 16, as_integers), [7, 8, 9, 10])
    device.free(small)


@pytest.mark.parametrize("calls", [native, public])
def test_a_mapped_buffer_can_be_unmapped_at_any_time(device, numbers, calls, monkeypatch):
    monkeypatch.setattr(device, "calls", calls)
    staging = device.staging(1024, "numbers")
    device.unmap(staging)  # it was never mapped
    submission = device.submit((), (), [(numbers, 0, staging, 0, 1024)])
    device.map(staging, 1024, submission)  # and nobody waits
    device.unmap(staging)
    submission = device.submit((), (), [(numbers, 0, staging, 0, 1024)])
    mapping = device.map(staging, 1024, submission)
    mapping.wait(None)
    np.testing.assert_array_equal(as_integers(mapping.view), np.arange(256))
    device.unmap(staging)
    device.free(staging)


def test_a_buffer_is_mapped_once_at_a_time(device, numbers):
    staging = device.staging(1024, "numbers")
    submission = device.submit((), (), [(numbers, 0, staging, 0, 1024)])
    device.map(staging, 1024, submission).wait(None)
    with pytest.raises(pteron.DeviceError, match="wait"):
        device.map(staging, 1024, submission).wait(None)
    device.unmap(staging)
    device.free(staging)


def test_threads_wait_for_their_own_buffers(device):
    failures = []

    def read(seed):
        values = np.random.default_rng(seed).integers(0, 1000, 256).astype(np.int32)
        buffer = device.storage(1024, "mine")
        for shift in range(20):
            device.write(buffer, 0, values + shift)
            if not np.array_equal(read_back(device, buffer, 1024, as_integers), values + shift):
                failures.append((seed, shift))
        device.free(buffer)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not failures and not any(thread.is_alive() for thread in threads)
