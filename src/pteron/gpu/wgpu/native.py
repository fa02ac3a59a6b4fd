"""What a call asks of wgpu-py, by the C functions beneath it: a fraction of the Python, and no other thread.

wgpu-py's public calls cost several microseconds each, the C functions less than one; and its `map_sync`
submits an empty command buffer and waits for a poll thread to hand over, where these wait right here. They
are used where this version of wgpu-py has them in the known place; `public` has the same functions.

No Python runs inside the GPU library: an exception, such as that of Ctrl-C, would be swallowed there. The
callback that a mapping must name is therefore a C function of the library that does nothing of interest.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import wgpu

from pteron.errors import DeviceError
from pteron.gpu.device import Command, Copy
from pteron.gpu.wgpu.translate import wgpu_errors

try:
    from wgpu.backends.wgpu_native import ffi, lib
    from wgpu.backends.wgpu_native._api import error_handler

    _capture, _release = error_handler.capture, error_handler.release
    _set_pipeline = lib.wgpuComputePassEncoderSetPipeline
    _set_group = lib.wgpuComputePassEncoderSetBindGroup
    _dispatch = lib.wgpuComputePassEncoderDispatchWorkgroups
    _begin_pass, _end_pass = lib.wgpuCommandEncoderBeginComputePass, lib.wgpuComputePassEncoderEnd
    _release_pass = lib.wgpuComputePassEncoderRelease
    _new_encoder, _release_encoder = lib.wgpuDeviceCreateCommandEncoder, lib.wgpuCommandEncoderRelease
    _copy, _finish = lib.wgpuCommandEncoderCopyBufferToBuffer, lib.wgpuCommandEncoderFinish
    _submit, _write = lib.wgpuQueueSubmitForIndex, lib.wgpuQueueWriteBuffer
    _release_commands = lib.wgpuCommandBufferRelease
    _map, _unmap, _poll = lib.wgpuBufferMapAsync, lib.wgpuBufferUnmap, lib.wgpuDevicePoll
    _range = lib.wgpuBufferGetConstMappedRange

    _MAP_REQUEST = ffi.new("WGPUBufferMapCallbackInfo *")
    _MAP_REQUEST.mode = lib.WGPUCallbackMode_AllowProcessEvents
    _MAP_REQUEST.callback = ffi.cast("WGPUBufferMapCallback", ffi.addressof(lib, "wgpuGetVersion"))
    _NULL, _gc = ffi.NULL, ffi.gc
    AVAILABLE = True
except (ImportError, AttributeError, TypeError):
    AVAILABLE = False

# How long a wait with a timeout sleeps between two looks at the GPU, in seconds.
LOOK_EVERY = 0.0005


class _Checked:
    """While the block lasts, the errors of the C functions are kept. At its end they are raised."""

    def __enter__(self) -> None:
        _capture("pteron")

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        complaint = _release("pteron")
        if complaint is not None and kind is None:
            raise wgpu.GPUError(complaint[1])


_checked = _Checked()


def command(pipeline: Any, group: Any, grid: tuple[int, int, int]) -> Command:
    """One dispatch, resolved once. The caller keeps the pipeline and the group alive."""
    return (pipeline._internal, group._internal, *grid)


def encode(compute: Any, commands: Iterable[Command]) -> None:
    """Record commands into an open compute pass. A pipeline that is already set is not set again."""
    _encode(compute._internal, commands)


def _encode(compute: Any, commands: Iterable[Command]) -> None:
    present = None
    for pipeline, group, x, y, z in commands:
        if pipeline is not present:
            _set_pipeline(compute, pipeline)
            present = pipeline
        _set_group(compute, 0, group, 0, _NULL)
        _dispatch(compute, x, y, z)


def submit(device: Any, before: Iterable[Copy], commands: Iterable[Command], after: Iterable[Copy]) -> Any:
    """Copies, then kernels, then copies: one encoder, one submit. Returns what `Mapping` waits for."""
    with _checked:
        recorded = _record(device._internal, before, commands, after)
    with _checked:
        return _submit(device.queue._internal, 1, ffi.new("WGPUCommandBuffer[1]", [recorded]))


def _record(device: Any, before: Iterable[Copy], commands: Iterable[Command], after: Iterable[Copy]) -> Any:
    # Handles are released when Python drops them, also when an interrupt cuts the recording short.
    encoder = _gc(_new_encoder(device, _NULL), _release_encoder)
    for source, offset, target, place, nbytes in before:
        _copy(encoder, source._internal, offset, target._internal, place, nbytes)  # type: ignore[attr-defined]
    compute = _gc(_begin_pass(encoder, _NULL), _release_pass)
    _encode(compute, commands)
    _end_pass(compute)
    for source, offset, target, place, nbytes in after:
        _copy(encoder, source._internal, offset, target._internal, place, nbytes)  # type: ignore[attr-defined]
    return _gc(_finish(encoder, _NULL), _release_commands)


def write(device: Any, buffer: Any, offset: int, data: Any) -> None:
    """Copy whole words of host memory into a buffer."""
    with _checked:
        _write(device.queue._internal, buffer._internal, offset, ffi.from_buffer(data), len(data))


def wait(device: Any) -> None:
    """Wait until everything submitted so far has been done."""
    with _checked:
        _poll(device._internal, True, _NULL)


class Mapping:
    """The first bytes of a staging buffer, as a submission leaves them."""

    __slots__ = ("_buffer", "_device", "_nbytes", "_submission")

    def __init__(self, device: Any, staging: Any, nbytes: int, submission: Any) -> None:
        self._device, self._buffer, self._nbytes = device._internal, staging._internal, nbytes
        self._submission = submission
        with _checked:
            _map(self._buffer, wgpu.MapMode.READ, 0, nbytes, _MAP_REQUEST[0])

    def wait(self, timeout: float | None) -> None:
        with wgpu_errors("wait"), _checked:
            if timeout is not None:
                _wait_at_most(self._device, timeout)
            elif self._submission is None:  # it was made by wgpu-py's public calls
                _poll(self._device, True, _NULL)
            else:  # when the submission is done, so are the mappings that wait for it
                _poll(self._device, True, ffi.new("WGPUSubmissionIndex *", self._submission))

    @property
    def view(self) -> memoryview:
        return memoryview(ffi.buffer(_range(self._buffer, 0, self._nbytes), self._nbytes)).cast("B")


def _wait_at_most(device: Any, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not _poll(device, False, _NULL) & 1:  # a C bool: only its lowest byte is set
        if time.monotonic() > deadline:
            raise DeviceError(f"the GPU has not finished within {seconds:g} s: wait longer with timeout=")
        time.sleep(LOOK_EVERY)


def unmap(staging: Any) -> None:
    """Unmap a staging buffer, or cancel its mapping. It is fine if there is none."""
    _capture("pteron")
    _unmap(staging._internal)
    _release("pteron")
