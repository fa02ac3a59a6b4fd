"""What a call asks of wgpu-py, by the C functions beneath it: a fraction of the Python, and no other thread.

wgpu-py's public calls cost several microseconds each, the C functions less than one; and its `map_sync`
submits an empty command buffer and waits for a poll thread to hand over, where these wait right here. They
are used where this version of wgpu-py has them in the known place; `public` has the same functions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import wgpu

from pteron.gpu.wgpu.public import Command, Copy

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
    _submit, _write = lib.wgpuQueueSubmit, lib.wgpuQueueWriteBuffer
    _release_commands = lib.wgpuCommandBufferRelease
    _map, _unmap, _poll = lib.wgpuBufferMapAsync, lib.wgpuBufferUnmap, lib.wgpuDevicePoll
    _range, _succeeded = lib.wgpuBufferGetConstMappedRange, lib.WGPUMapAsyncStatus_Success

    @ffi.callback("void(WGPUMapAsyncStatus, WGPUStringView, void *, void *)")  # type: ignore[untyped-decorator]
    def _answered(status: int, message: Any, answer: Any, _: Any) -> None:
        text = ffi.unpack(message.data, message.length) if status != _succeeded and message.data else b""
        ffi.from_handle(answer).append((status, text.decode(errors="replace")))

    _NULL = ffi.NULL
    AVAILABLE = True
except (ImportError, AttributeError, TypeError):
    AVAILABLE = False

# A blocking poll returns when the GPU is idle, and the answer is there by then; this is for drivers that lie.
PATIENCE = 1000


class _Checked:
    """While the block lasts, what the C functions complain of is kept; then it is raised."""

    def __enter__(self) -> None:
        _capture("pteron")

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        complaint = _release("pteron")
        if complaint is not None and kind is None:
            raise wgpu.GPUError(complaint[1])


_checked = _Checked()


def command(pipeline: Any, group: Any, grid: tuple[int, int, int]) -> Command:
    """One dispatch, resolved once. Whoever holds it keeps the pipeline and the group alive."""
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


def submit(device: Any, before: Iterable[Copy], commands: Iterable[Command], after: Iterable[Copy]) -> None:
    """Copies, then kernels, then copies: one encoder, one submit."""
    encoder = _new_encoder(device._internal, _NULL)
    try:
        with _checked:
            finished = ffi.new("WGPUCommandBuffer[]", [_record(encoder, before, commands, after)])
        with _checked:  # apart, for what could not be recorded must not be submitted
            _submit(device.queue._internal, 1, finished)
        _release_commands(finished[0])
    finally:
        _release_encoder(encoder)


def _record(encoder: Any, before: Iterable[Copy], commands: Iterable[Command], after: Iterable[Copy]) -> Any:
    """The finished command buffer."""
    for source, offset, target, place, nbytes in before:
        _copy(encoder, source._internal, offset, target._internal, place, nbytes)
    compute = _begin_pass(encoder, _NULL)
    _encode(compute, commands)
    _end_pass(compute)
    _release_pass(compute)
    for source, offset, target, place, nbytes in after:
        _copy(encoder, source._internal, offset, target._internal, place, nbytes)
    return _finish(encoder, _NULL)


def write(device: Any, buffer: Any, offset: int, data: Any) -> None:
    """Copy whole words of host memory into a buffer."""
    with _checked:
        _write(device.queue._internal, buffer._internal, offset, ffi.from_buffer(data), len(data))


class Mapped:
    """The first bytes of a staging buffer, once the GPU has written them, while the block lasts.

    Whoever reads must have submitted the copy into the buffer before.
    """

    __slots__ = ("_buffer", "_nbytes")

    def __init__(self, device: Any, staging: Any, nbytes: int) -> None:
        self._buffer, self._nbytes = staging._internal, nbytes
        _wait_for_mapping(device._internal, self._buffer, nbytes)

    def __enter__(self) -> memoryview:
        return memoryview(ffi.buffer(_range(self._buffer, 0, self._nbytes), self._nbytes)).cast("B")

    def __exit__(self, *_: object) -> None:
        _unmap(self._buffer)


def _wait_for_mapping(device: Any, buffer: Any, nbytes: int) -> None:
    answers: list[tuple[int, str]] = []
    answer = ffi.new_handle(answers)
    request = ffi.new("WGPUBufferMapCallbackInfo *")
    request.mode = lib.WGPUCallbackMode_AllowProcessEvents
    request.callback = _answered
    request.userdata1 = answer
    _map(buffer, wgpu.MapMode.READ, 0, nbytes, request[0])
    for _ in range(PATIENCE):
        if answers:
            break
        _poll(device, True, _NULL)
    status, message = answers[0] if answers else (0, "the GPU does not answer")
    if status != _succeeded:
        raise RuntimeError(f"cannot map the buffer: {message or f'status {status}'}")
