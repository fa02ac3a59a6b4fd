"""All that Pteron uses of wgpu-py's private parts: the C functions of a call, and a few more.

A public call of wgpu-py takes several microseconds, a C function less than one. The public `map_sync` submits
an empty command buffer and waits for a poll thread; the functions here wait in the calling thread. `public`
has the same functions, for a version of wgpu-py that does not have these in the known place.

wgpu-py promises none of this. So pyproject.toml allows one minor version of it, no other file uses private
names, and `tests/devices/test_wgpu_internals.py` tests what each one means.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import wgpu

from pteron.engine.devices.device import Checks, Command, Copy
from pteron.engine.devices.wgpu.translate import ERRORS, translated
from pteron.errors import DeviceTimeout

try:
    from wgpu.backends.wgpu_native import ffi, lib
    from wgpu.backends.wgpu_native._api import GPUShaderModule, error_handler

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
    _range, _writable_range = lib.wgpuBufferGetConstMappedRange, lib.wgpuBufferGetMappedRange
    _new_group, _release_group = lib.wgpuDeviceCreateBindGroup, lib.wgpuBindGroupRelease
    _new_trusted_module, _WGSL = lib.wgpuDeviceCreateShaderModuleTrusted, lib.WGPUSType_ShaderSourceWGSL
    _tick_nanoseconds = lib.wgpuQueueGetTimestampPeriod

    # A mapping must have a callback. No bytecode may run in it: between bytecodes, Python handles signals,
    # and a KeyboardInterrupt inside the GPU library would be lost. So it is a function in C, which takes any
    # arguments, does nothing and returns None: a tuple is complete before its `__init__` is called.
    _on_mapped = ffi.callback("WGPUBufferMapCallback", ().__init__)  # type: ignore[misc]
    _MAP_REQUEST = ffi.new("WGPUBufferMapCallbackInfo *")
    _MAP_REQUEST.mode, _MAP_REQUEST.callback = lib.WGPUCallbackMode_AllowProcessEvents, _on_mapped
    _NULL, _gc = ffi.NULL, ffi.gc
    AVAILABLE = True
except (ImportError, AttributeError, TypeError):
    AVAILABLE = False

_READ = int(wgpu.MapMode.READ)
_ERRORS: dict[str, type[wgpu.GPUError]] = {
    "OutOfMemory": wgpu.GPUOutOfMemoryError,
    "Validation": wgpu.GPUValidationError,
    "Internal": wgpu.GPUInternalError,
}

# Seconds between two polls of the GPU, in a wait with a timeout.
POLL_INTERVAL = 0.0005


class _Checked:
    """Collects the errors of C functions inside the block. At its end, an error is raised."""

    def __enter__(self) -> None:
        _capture("pteron")

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        complaint = _release("pteron")
        if complaint is not None and kind is None:
            named, message = complaint
            raise _ERRORS.get(named, wgpu.GPUError)(message)


_checked = _Checked()


def shader_module(device: Any, label: str, code: str, checks: Checks) -> Any:
    """Compile a shader text with these checks of the driver."""
    if checks == Checks.ALL:
        return device.create_shader_module(label=label, code=code)
    text, name = code.encode(), label.encode()
    # wgpu reads these objects during the call, so they must stay alive.
    text_data, name_data = ffi.new("char[]", text), ffi.new("char[]", name)
    source = ffi.new("WGPUShaderSourceWGSL *")
    source.chain.sType = _WGSL
    source.code.data, source.code.length = text_data, len(text)
    descriptor = ffi.new("WGPUShaderModuleDescriptor *")
    descriptor.nextInChain = ffi.cast("WGPUChainedStruct *", source)
    descriptor.label.data, descriptor.label.length = name_data, len(name)
    with _checked:
        handle = _new_trusted_module(device._internal, descriptor, checks)
    return GPUShaderModule(label, handle, device)


class NativeGroup:
    """A bind group. It has the name that wgpu-py uses for C handles."""

    __slots__ = ("_internal",)

    def __init__(self, handle: Any) -> None:
        self._internal = _gc(handle, _release_group)


def bind_group(device: Any, layout: Any, buffers: Iterable[tuple[Any, int, int]], label: str) -> NativeGroup:
    """Bind (buffer, offset, nbytes) in the order of the layout."""
    bound = list(buffers)
    # wgpu reads these objects during the call, so they must stay alive.
    name, entries = ffi.new("char[]", label.encode()), ffi.new("WGPUBindGroupEntry[]", len(bound))
    for number, (buffer, offset, nbytes) in enumerate(bound):
        entry = entries[number]
        entry.binding, entry.buffer, entry.offset, entry.size = number, buffer._internal, offset, nbytes
    descriptor = ffi.new("WGPUBindGroupDescriptor *")
    descriptor.label.data, descriptor.label.length = name, len(name) - 1
    descriptor.layout, descriptor.entryCount, descriptor.entries = layout._internal, len(bound), entries
    with _checked:
        return NativeGroup(_new_group(device._internal, descriptor))


def command(pipeline: Any, group: Any, grid: tuple[int, int, int]) -> Command:
    """One dispatch, prepared once. The caller keeps the pipeline and the group alive."""
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
    """Copies, then kernels, then copies: one encoder, one submit. Returns the submission, for `map`."""
    return submit_recorded(device, record(device, before, commands, after))


def record(device: Any, before: Iterable[Copy], commands: Iterable[Command], after: Iterable[Copy]) -> Any:
    """Record what `submit` does."""
    with _checked:
        return _record(device._internal, before, commands, after)


def submit_recorded(device: Any, recorded: Any) -> Any:
    """Submit what was recorded, once. Returns the submission, for `map`."""
    with _checked:
        return _submit(device.queue._internal, 1, ffi.new("WGPUCommandBuffer[1]", [recorded]))


def _record(device: Any, before: Iterable[Copy], commands: Iterable[Command], after: Iterable[Copy]) -> Any:
    # Handles are released with their Python objects, also after an interrupt.
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


def fill(buffer: Any, nbytes: int, parts: Iterable[tuple[int, Any]]) -> None:
    """Write host bytes (offset, bytes) into a buffer that is mapped since its creation, and unmap it."""
    target = memoryview(ffi.buffer(_writable_range(buffer._internal, 0, nbytes), nbytes)).cast("B")
    for offset, data in parts:
        view = memoryview(data).cast("B")
        target[offset : offset + len(view)] = view
    target.release()
    with _checked:
        _unmap(buffer._internal)


def wait(device: Any) -> None:
    """Wait until all submissions are finished."""
    with _checked:
        _poll(device._internal, True, _NULL)


class NativeMapping:
    """The first bytes of a staging buffer, after a submission."""

    __slots__ = ("_buffer", "_device", "_nbytes", "_submission")

    def __init__(self, device: Any, staging: Any, nbytes: int, submission: Any) -> None:
        self._device, self._buffer, self._nbytes = device, staging._internal, nbytes
        self._submission = submission

    def wait(self, timeout: float | None) -> None:
        try:
            self._wait(timeout)
        except DeviceTimeout:
            raise
        except ERRORS as error:
            raise translated("wait", error, self._device) from error

    def _wait(self, timeout: float | None) -> None:
        device = self._device._internal
        with _checked:
            _map(self._buffer, _READ, 0, self._nbytes, _MAP_REQUEST[0])
            if timeout is not None:
                _wait_at_most(device, timeout)
            elif self._submission is None:  # it was submitted through wgpu-py's public functions
                _poll(device, True, _NULL)
            else:  # a finished submission also finishes its mappings
                _poll(device, True, ffi.new("WGPUSubmissionIndex *", self._submission))

    @property
    def view(self) -> memoryview:
        return memoryview(ffi.buffer(_range(self._buffer, 0, self._nbytes), self._nbytes)).cast("B")


def _wait_at_most(device: Any, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not _poll(device, False, _NULL) & 1:  # a C bool: only its lowest byte is valid
        if time.monotonic() > deadline:
            raise DeviceTimeout.after(seconds)
        time.sleep(POLL_INTERVAL)


def map(device: Any, staging: Any, nbytes: int, submission: Any) -> NativeMapping:
    return NativeMapping(device, staging, nbytes, submission)


def unmap(staging: Any) -> None:
    """Unmap a staging buffer, or cancel its mapping. Does nothing if it is not mapped."""
    _capture("pteron")
    _unmap(staging._internal)
    _release("pteron")


def tick_nanoseconds(device: Any) -> float:
    """Return the nanoseconds of a timestamp's unit: wgpu-native returns the raw ticks of the GPU."""
    return float(_tick_nanoseconds(device.queue._internal))


def never_release() -> None:
    """Keep all objects of wgpu-py on the GPU until the process ends. For a child after a fork.

    Python may drop such an object at any time. To release it, the driver would wait for its threads, which
    only the parent has. wgpu-py has no switch for this.
    """
    for kind in (wgpu.classes.GPUObjectBase, wgpu.classes.GPUAdapter):
        kind.__del__ = lambda _: None
