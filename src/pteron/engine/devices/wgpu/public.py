"""The operations of a call, with wgpu-py's public functions: for versions without the known C functions.

`native` has the same functions. Both record kernels into one compute pass and submit once.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import wgpu

from pteron.engine.devices.device import Checks, Command, Copy
from pteron.engine.devices.wgpu.translate import wgpu_errors
from pteron.errors import DeviceTimeout


def shader_module(device: Any, label: str, code: str, checks: Checks) -> Any:
    """Compile a shader text. It has all checks of the driver, whatever it needs."""
    return device.create_shader_module(label=label, code=code)


def bind_group(device: Any, layout: Any, buffers: Iterable[tuple[Any, int, int]], label: str) -> Any:
    """Bind (buffer, offset, nbytes) in the order of the layout."""
    entries = [
        {"binding": i, "resource": {"buffer": buffer, "offset": offset, "size": nbytes}}
        for i, (buffer, offset, nbytes) in enumerate(buffers)
    ]
    return device.create_bind_group(label=label, layout=layout, entries=entries)


def command(pipeline: Any, group: Any, grid: tuple[int, int, int]) -> Command:
    """One dispatch, prepared once. The caller keeps the pipeline and the group alive."""
    return (pipeline, group, *grid)


def encode(compute: Any, commands: Iterable[Command]) -> None:
    """Record commands into an open compute pass. A pipeline that is already set is not set again."""
    present = None
    for pipeline, group, x, y, z in commands:
        if pipeline is not present:
            compute.set_pipeline(pipeline)
            present = pipeline
        compute.set_bind_group(0, group)
        compute.dispatch_workgroups(x, y, z)


def encode_pass(encoder: Any, commands: Iterable[Command]) -> None:
    compute = encoder.begin_compute_pass()
    encode(compute, commands)
    compute.end()


def submit(
    device: Any,
    before: Iterable[Copy],
    commands: Iterable[Command],
    after: Iterable[Copy],
    encode_kernels: Callable[[Any, Iterable[Command]], None] = encode_pass,
) -> None:
    """Copies, then kernels, then copies: one encoder, one submit."""
    submit_recorded(device, record(device, before, commands, after, encode_kernels))


def record(
    device: Any,
    before: Iterable[Copy],
    commands: Iterable[Command],
    after: Iterable[Copy],
    encode_kernels: Callable[[Any, Iterable[Command]], None] = encode_pass,
) -> Any:
    """Record what `submit` does."""
    encoder = device.create_command_encoder()
    for copy in before:
        encoder.copy_buffer_to_buffer(*copy)
    encode_kernels(encoder, commands)
    for copy in after:
        encoder.copy_buffer_to_buffer(*copy)
    return encoder.finish()


def submit_recorded(device: Any, recorded: Any) -> None:
    """Submit what was recorded, once."""
    device.queue.submit([recorded])


def write(device: Any, buffer: Any, offset: int, data: Any) -> None:
    """Copy whole words of host memory into a buffer."""
    device.queue.write_buffer(buffer, offset, data)


def wait(device: Any) -> None:
    """Wait until all submissions are finished."""
    _end_of_submissions(device).sync_wait()


def _end_of_submissions(device: Any) -> Any:
    """The mapping of a buffer that is written after all submissions."""
    buffer = device.create_buffer(size=16, usage=wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST)
    encoder = device.create_command_encoder()
    encoder.clear_buffer(buffer)
    device.queue.submit([encoder.finish()])
    return buffer.map_async(wgpu.MapMode.READ)


# The mappings that were begun, by staging buffer.
_mappings: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def _wait_at_most(device: Any, seconds: float) -> None:
    """Wait until all submissions are finished. wgpu-py waits without a limit, so another thread waits."""
    done = threading.Event()
    finished = _end_of_submissions(device)

    def wait() -> None:
        with suppress(wgpu.GPUError, RuntimeError):  # the mapping raises it, too
            finished.sync_wait()
        done.set()

    threading.Thread(target=wait, name="pteron timeout", daemon=True).start()
    if not done.wait(seconds):
        raise DeviceTimeout.after(seconds)


class PublicMapping:
    """The first bytes of a staging buffer, after a submission."""

    def __init__(self, device: Any, staging: Any, nbytes: int, submission: Any) -> None:
        self._device, self._staging, self._nbytes = device, staging, nbytes

    def wait(self, timeout: float | None) -> None:
        with wgpu_errors("wait", self._device):
            if timeout is not None:
                _wait_at_most(self._device, timeout)
            _mappings[self._staging] = mapping = self._staging.map_async(wgpu.MapMode.READ, 0, self._nbytes)
            mapping.sync_wait()

    @property
    def view(self) -> memoryview:
        data: memoryview = self._staging.read_mapped(copy=False)
        return data


def map(device: Any, staging: Any, nbytes: int, submission: Any) -> PublicMapping:
    return PublicMapping(device, staging, nbytes, submission)


def unmap(staging: Any) -> None:
    """Unmap a staging buffer. Does nothing if it is not mapped.

    wgpu-py cannot cancel a mapping: one that was interrupted is finished first.
    """
    with suppress(wgpu.GPUError, RuntimeError):
        if staging in _mappings:
            _mappings[staging].sync_wait()
        staging.unmap()
    _mappings.pop(staging, None)


def tick_nanoseconds(device: Any) -> float:
    """Return the nanoseconds of a timestamp's unit, as the standard has it."""
    return 1.0
