"""The GPU interface that Pteron needs.

`gpu/wgpu` implements it with wgpu-py, `gpu/web` with the WebGPU of a browser. `gpu/recording` only records
the calls and needs no GPU. Handles (buffers, pipelines, bind groups, submissions) are created by the device
and are opaque to other code.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from pteron.ir.dispatch import Grid

T = TypeVar("T")


class Buffer(Protocol):
    @property
    def size(self) -> int: ...


Pipeline: TypeAlias = Any
BindGroup: TypeAlias = Any
Command: TypeAlias = Any  # a dispatch, prepared once by `Device.command`
Recorded: TypeAlias = Any  # recorded commands, for one `Device.submit_recorded`
Submission: TypeAlias = Any  # the result of `Device.submit`, to wait for
Copy: TypeAlias = tuple[Buffer, int, Buffer, int, int]  # source, offset, target, offset, bytes


class BufferMapping(Protocol):
    """A staging buffer that is mapped for reading. `view` is valid between `wait` and `Device.unmap`."""

    def wait(self, timeout: float | None) -> None:
        """Block until the GPU has written the buffer. Raises `DeviceError` after `timeout` seconds."""

    @property
    def view(self) -> memoryview: ...


class Device(Protocol):
    """One GPU. Threads may share it: code that changes the data of a method holds `lock`."""

    lock: threading.RLock
    adapter: Any  # the adapter of this machine, if kernels can be timed on it, else None
    allocations: int  # number of buffers created
    compilations: int  # number of pipelines created

    @property
    def allocated_nbytes(self) -> int:
        """Bytes of all buffers that are still in use."""

    @property
    def name(self) -> str: ...

    @property
    def is_software(self) -> bool: ...

    @property
    def uniform_alignment(self) -> int: ...

    @property
    def route_features(self) -> frozenset[str]:
        """The kind of device, and the features that kernels may use beyond the portable minimum."""

    def check_usable(self) -> None:
        """Raise `DeviceError` if the device is closed, lost, or belongs to the parent process."""

    def storage(self, nbytes: int, label: str) -> Buffer:
        """A buffer for tensors."""

    def constant(self, nbytes: int, label: str, parts: Iterable[tuple[int, Any]]) -> Buffer:
        """A buffer for tensors with these contents: (offset, host bytes)."""

    def uniform(self, nbytes: int, label: str) -> Buffer:
        """A buffer for parameters."""

    def staging(self, nbytes: int, label: str) -> Buffer:
        """A buffer that the host can map for reading."""

    def free(self, buffer: Buffer) -> None: ...

    def write(self, buffer: Buffer, offset: int, data: Any) -> None:
        """Copy host bytes into a buffer. Later submissions see them."""

    def clear(self, parts: Iterable[tuple[Buffer, int, int]]) -> None:
        """Fill parts of buffers (buffer, offset, bytes) with zeros. Parts are whole words."""

    def pipeline(self, source: str, label: str, kinds: Sequence[str]) -> Pipeline:
        """The compute pipeline of a shader text, compiled once. `kinds` is the type of each binding."""

    def bind_group(
        self, pipeline: Pipeline, buffers: Iterable[tuple[Buffer, int, int]], label: str
    ) -> BindGroup:
        """Bind (buffer, offset, nbytes) in the order of the shader's bindings."""

    def command(self, pipeline: Pipeline, group: BindGroup, grid: Grid) -> Command:
        """One dispatch, for `submit`. The caller keeps the pipeline and the group alive."""

    def submit(
        self, before: Iterable[Copy], commands: Iterable[Command], after: Iterable[Copy]
    ) -> Submission:
        """Copies, then kernels in one pass, then copies: one encoder, one submit."""

    @property
    def can_record(self) -> bool:
        """Whether commands can be recorded now and submitted later."""

    def record(self, commands: Iterable[Command], after: Iterable[Copy]) -> Recorded:
        """Record kernels and then copies. Nothing runs before `submit_recorded`."""

    def submit_recorded(self, recorded: Recorded) -> Submission:
        """Submit what was recorded. It can be submitted once."""

    def warm_up(self, commands: Sequence[Command], done: Callable[[int], None] | None = None) -> None:
        """Run commands whose drivers may finish the compilation at the first use of a pipeline.

        `done` is told how many are finished.
        """

    def map(self, staging: Buffer, nbytes: int, submission: Submission) -> BufferMapping:
        """Map the first bytes of a staging buffer for reading, after a submission."""

    def unmap(self, staging: Buffer) -> None:
        """Unmap a staging buffer, also after an interrupted read."""

    def wait(self) -> None:
        """Block until all submissions are finished and all pipelines are compiled."""

    async def settled(self) -> None:
        """Like `wait`, without blocking the event loop."""

    async def after(self, submission: Submission, function: Callable[[], T]) -> T:
        """Call a function that waits for a submission, such as `Pending.result`.

        The event loop is not blocked.
        """

    def reopen(self) -> Device:
        """A new device on the same GPU, after this one was lost."""

    async def reopen_async(self) -> Device:
        """Like `reopen`, without blocking the event loop."""

    def close(self) -> None: ...


def uploaded(device: Device, nbytes: int, label: str, parts: Iterable[tuple[int, Any]]) -> Any:
    """A new buffer with these contents, which are written to it. See `Device.constant`."""
    buffer = device.storage(nbytes, label)
    try:
        for offset, data in parts:
            if len(data):
                device.write(buffer, offset, data)
    except BaseException:
        device.free(buffer)
        raise
    return buffer
