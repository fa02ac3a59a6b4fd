"""Waiting for the GPU and reading a staging buffer, without a detour through another thread.

wgpu-py's `map_sync` submits an empty command buffer first and waits for a poll thread to hand over: more
than a small program takes to run. The C functions beneath it wait right here. They are used where this
version of wgpu-py has them in the known place, and the public calls otherwise. Whoever reads must have
submitted the copy into the buffer before.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import wgpu

try:
    from wgpu.backends.wgpu_native import ffi, lib

    _SUCCESS = lib.WGPUMapAsyncStatus_Success
    _map, _unmap, _poll = lib.wgpuBufferMapAsync, lib.wgpuBufferUnmap, lib.wgpuDevicePoll
    _range = lib.wgpuBufferGetConstMappedRange

    @ffi.callback("void(WGPUMapAsyncStatus, WGPUStringView, void *, void *)")  # type: ignore[untyped-decorator]
    def _answered(status: int, message: Any, answer: Any, _: Any) -> None:
        text = ffi.unpack(message.data, message.length) if status != _SUCCESS and message.data else b""
        ffi.from_handle(answer).append((status, text.decode(errors="replace")))

    RAW = True
except (ImportError, AttributeError, TypeError):
    RAW = False

# A blocking poll returns when the GPU is idle, and the answer is there by then; this is for drivers that lie.
PATIENCE = 1000


@contextmanager
def mapped(device: Any, staging: Any, nbytes: int) -> Iterator[memoryview]:
    """The first bytes of a wgpu staging buffer, once the GPU has written them, while the block lasts."""
    if not RAW:
        with mapped_public(staging, nbytes) as data:
            yield data
        return
    handle = staging._internal
    _wait_for_mapping(device._internal, handle, nbytes)
    try:
        yield memoryview(ffi.buffer(_range(handle, 0, nbytes), nbytes)).cast("B")
    finally:
        _unmap(handle)


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
        _poll(device, True, ffi.NULL)
    status, message = answers[0] if answers else (0, "the GPU does not answer")
    if status != _SUCCESS:
        raise RuntimeError(f"cannot map the buffer: {message or f'status {status}'}")


@contextmanager
def mapped_public(staging: Any, nbytes: int) -> Iterator[memoryview]:
    staging.map_sync(wgpu.MapMode.READ, 0, nbytes)
    try:
        yield staging.read_mapped(copy=False)
    finally:
        staging.unmap()
