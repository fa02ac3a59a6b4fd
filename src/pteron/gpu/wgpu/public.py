"""The operations of a call, with wgpu-py's public functions: for versions without the known C functions.

`native` has the same functions. Both record kernels into one compute pass and submit once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import wgpu

from pteron.gpu.device import Command, Copy
from pteron.gpu.wgpu.translate import wgpu_errors


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
    staging = device.create_buffer(size=16, usage=wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST)
    staging.map_sync(wgpu.MapMode.READ, 0, 16)
    staging.unmap()


class PublicMapping:
    """The first bytes of a staging buffer, after a submission."""

    def __init__(self, device: Any, staging: Any, nbytes: int, submission: Any) -> None:
        self._staging, self._nbytes = staging, nbytes

    def wait(self, timeout: float | None) -> None:
        with wgpu_errors("wait"):
            self._staging.map_sync(wgpu.MapMode.READ, 0, self._nbytes)  # it has no timeout

    @property
    def view(self) -> memoryview:
        data: memoryview = self._staging.read_mapped(copy=False)
        return data


def map(device: Any, staging: Any, nbytes: int, submission: Any) -> PublicMapping:
    return PublicMapping(device, staging, nbytes, submission)


def unmap(staging: Any) -> None:
    """Unmap a staging buffer, or cancel its mapping. Does nothing if it is not mapped."""
    with suppress(wgpu.GPUError, RuntimeError):
        staging.unmap()
