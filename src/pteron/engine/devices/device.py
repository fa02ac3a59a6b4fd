"""The GPU interface that Pteron needs, for those who use a device and for those who write one.

`wgpu` implements it with wgpu-py, `web` with the WebGPU of a browser. `recording` only records the calls and
needs no GPU. `tests/devices` proves an implementation. Handles (buffers, pipelines, bind groups, commands,
submissions) are created by the device and are opaque to other code.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import IntFlag
from typing import Any, Protocol, TypeAlias, TypeVar

from pteron.compiler.ir.dispatch import GPU, MANY_REGISTERS, SOFTWARE, Grid
from pteron.compiler.ops.loops import all_end
from pteron.engine.devices.adapter import Adapter
from pteron.errors import DeviceError, OutOfMemory

T = TypeVar("T")

# A shader text with this line computes only indices that its rule has checked. On software adapters, where
# bounds checks cost much, it runs without them.
TRUSTED = "//#trusted"


class Checks(IntFlag):
    """What a driver adds to a shader text: clamped indices, and counters in loops that might not end."""

    NONE = 0
    BOUNDS = 1
    ALL = 3

    @classmethod
    def needed(cls, text: str, is_software: bool) -> Checks:
        """The checks for a text. On a GPU, every index is checked."""
        if not is_software:
            return cls.BOUNDS if all_end(text) else cls.ALL
        # A CPU gains little by unrolled loops, and compiles them for twice as long.
        return cls.NONE if TRUSTED in text else cls.ALL


LIMITS = (
    "max-buffer-size",
    "max-storage-buffer-binding-size",
    "max-uniform-buffer-binding-size",
    "max-storage-buffers-per-shader-stage",
    "max-uniform-buffers-per-shader-stage",
    "max-compute-invocations-per-workgroup",
    "max-compute-workgroup-size-x",
    "max-compute-workgroup-size-y",
    "max-compute-workgroup-size-z",
    "max-compute-workgroup-storage-size",
    "max-compute-workgroups-per-dimension",
    "min-uniform-buffer-offset-alignment",
    "min-storage-buffer-offset-alignment",
)


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
        """Block until the GPU has written the buffer.

        Other threads use the device in the meantime: the caller does not hold `lock`. Signals such as Ctrl-C
        raise here or after the wait, and are never lost.

        Raises:
            DeviceTimeout: It takes longer than `timeout` seconds. The buffer can be unmapped and read again.
            DeviceError, DeviceLost: The buffer is mapped already, or the submission failed.
        """

    @property
    def view(self) -> memoryview:
        """The bytes, without a copy where this is possible."""


@dataclass(frozen=True, slots=True)
class Span:
    """The start and end of a dispatch, in nanoseconds of the GPU's clock."""

    begin: float
    end: float


class Stopwatch(Protocol):
    def read(self) -> list[Span]:
        """Return one span per dispatch of the last submission, in order."""


Timer: TypeAlias = Callable[[], AbstractContextManager[Stopwatch]]


class Device(Protocol):
    """One GPU.

    To write one, subclass this and implement what has no body here; the other members are defaults.

    **Threads.** Many threads share a device. A caller holds `lock` around the writes and the submission that
    belong together. `pipeline`, `bind_group`, `storage` and `free` are also called without it, beside a
    submission: a device that cannot do this takes a lock of its own. Nobody holds `lock` while waiting.

    **Errors.** A member raises `DeviceError` with the operation in its text; `DeviceLost` if the GPU is gone;
    `OutOfMemory` if there is no memory. A device that learns of errors later raises them in `wait`, in
    `settle`, or when a result is read. After an error that is not `DeviceLost`, the device still works.

    **Sizes.** Offsets and sizes are multiples of four bytes, but for the data of `write`.
    """

    lock: threading.RLock
    adapter: Adapter | None = None  # of this machine, to store what was measured for it
    limits: Mapping[str, int]  # those of WebGPU in `LIMITS`
    allocations: int  # number of buffers created
    compilations: int  # number of pipelines created

    # -- what it is -----------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The name for messages."""

    @property
    def is_software(self) -> bool:
        """Whether it runs on the CPU."""

    @property
    def uniform_alignment(self) -> int:
        """Offsets of uniform bindings are multiples of this number of bytes."""
        return self.limits["min-uniform-buffer-offset-alignment"]

    @property
    def largest_binding(self) -> int:
        """The largest number of bytes in a buffer that a kernel can bind."""
        return min(self.limits["max-buffer-size"], self.limits["max-storage-buffer-binding-size"])

    @property
    def route_features(self) -> frozenset[str]:
        """The names in `compiler.ir.dispatch` that apply; they choose the kernels.

        `GPU` or `SOFTWARE`, and features beyond the portable minimum. `SUBGROUP`: a subgroup has at least 8
        lanes in every kernel, which adapters do not promise, so it is measured. `HALF`: f16 in shaders.
        `MANY_REGISTERS`: a lane has room for about 200 values. `WIDE`: 64-bit integers as naga has them.
        Without any of them, everything still runs.
        """

    @property
    def allocated_nbytes(self) -> int:
        """Bytes of all buffers that were neither freed nor dropped."""

    # -- its life -------------------------------------------------------------------------------

    def check_usable(self) -> None:
        """Raise `PteronError` if it is closed, `DeviceLost` if that is known, `DeviceError` after a fork.

        It is called before each call of a program. It is cheap, and asks the GPU nothing.
        """

    @property
    def is_lost(self) -> bool:
        """Whether the GPU was lost. It asks the GPU, so it is not for every call."""
        return False

    def reopen(self) -> Device:
        """Open the same GPU again with the same features. For use after a loss; this device may be closed.

        Raises:
            DeviceError: It cannot be opened.
        """

    async def reopen_async(self) -> Device:
        """Do as `reopen`, without blocking the event loop."""
        return await asyncio.to_thread(self.reopen)

    def close(self) -> None:
        """Free everything. A second close does nothing. Handles may be dropped afterwards."""

    # -- buffers --------------------------------------------------------------------------------

    def storage(self, nbytes: int, label: str) -> Buffer:
        """Create a buffer of zeros for tensors.

        Raises:
            OutOfMemory: No kernel could bind it, or there is no memory.
        """

    def constant(self, nbytes: int, label: str, parts: Iterable[tuple[int, Any]]) -> Buffer:
        """Create a buffer for tensors with these contents: (offset, host bytes). Raises as `storage`."""
        return upload(self, nbytes, label, parts)

    def uniform(self, nbytes: int, label: str) -> Buffer:
        """Create a buffer for parameters. Raises `OutOfMemory`."""

    def staging(self, nbytes: int, label: str) -> Buffer:
        """Create a buffer that the host can map for reading. Raises `OutOfMemory`."""

    def free(self, buffer: Buffer) -> None:
        """Give the memory back, after the submissions that use it. Also on a closed or lost device."""

    def write(self, buffer: Buffer, offset: int, data: Any) -> None:
        """Copy host bytes into a buffer. Later submissions see them, earlier ones do not.

        `data` has the buffer protocol and may be changed afterwards. If its size is not a multiple of four,
        the device pads the last word with zeros.
        """

    def clear(self, parts: Iterable[tuple[Buffer, int, int]]) -> None:
        """Fill parts of buffers (buffer, offset, bytes) with zeros, in order with the submissions."""

    # -- kernels --------------------------------------------------------------------------------

    def pipeline(self, source: str, label: str, kinds: Sequence[str]) -> Pipeline:
        """Compile a shader text, once per text. Its entry point is `main`, its bindings are in group 0.

        `kinds` is the type of each binding: `read`, `read_write` or `uniform`. A thread that compiles late
        kernels calls this beside submissions. It may have
        only the checks that it needs (see `Checks`).

        Raises:
            DeviceError: The text cannot be compiled. The message begins with "kernel {label}".
        """

    def bind_group(
        self, pipeline: Pipeline, buffers: Iterable[tuple[Buffer, int, int]], label: str
    ) -> BindGroup:
        """Bind (buffer, offset, nbytes) in the order of the shader's bindings."""

    def command(self, pipeline: Pipeline, group: BindGroup, grid: Grid) -> Command:
        """Prepare one dispatch, for any number of submissions. The caller keeps pipeline and group alive."""

    # -- running --------------------------------------------------------------------------------

    def submit(
        self, before: Iterable[Copy], commands: Iterable[Command], after: Iterable[Copy]
    ) -> Submission:
        """Run copies, then kernels, then copies. Each sees what those before it have written.

        It does not wait for the GPU. Submissions run in the order of these calls.
        """

    @property
    def can_record(self) -> bool:
        """Whether recording commands ahead saves time now."""
        return False

    def record(self, commands: Iterable[Command], after: Iterable[Copy]) -> Recorded:
        """Record kernels and then copies. Nothing runs before `submit_recorded`."""
        return (), tuple(commands), tuple(after)

    def submit_recorded(self, recorded: Recorded) -> Submission:
        """Submit what was recorded. It can be submitted once."""
        return self.submit(*recorded)

    def warm_up(self, commands: Sequence[Command], done: Callable[[int], None] | None = None) -> None:
        """Run commands whose drivers may finish the compilation at the first use of a pipeline.

        `done` is told how many are finished. May do nothing if compiled pipelines are complete.
        """
        self.submit((), commands, ())

    @property
    def timer(self) -> Timer | None:
        """Times each dispatch of the submissions inside a block: `with device.timer() as watch`.

        None if the GPU has no clock that programs can read. The block holds `lock`.
        """
        return None

    # -- waiting --------------------------------------------------------------------------------

    def map(self, staging: Buffer, nbytes: int, submission: Submission) -> BufferMapping:
        """Prepare to read the first bytes of a staging buffer that a submission writes. It does not wait."""

    def unmap(self, staging: Buffer) -> None:
        """Unmap a staging buffer, also after an interrupted read. Does nothing if it is not mapped."""

    def wait(self) -> None:
        """Block until all submissions are finished and all pipelines are compiled."""

    async def settle(self) -> None:
        """Do as `wait`, without blocking the event loop."""
        await asyncio.to_thread(self.wait)

    async def after(self, submission: Submission, function: Callable[[], T]) -> T:
        """Call a function that waits for this submission, such as `Pending.result`, off the event loop.

        A device whose submissions can be awaited awaits this one first; the function then does not block.
        """
        return await asyncio.to_thread(function)


def check_binding(device: Device, nbytes: int, label: str) -> None:
    """Refuse a buffer that no kernel on this device could bind."""
    if nbytes > device.largest_binding:
        raise OutOfMemory(
            f"{label} needs {nbytes:,} bytes, but {device.name} binds at most {device.largest_binding:,} at "
            "once: export the program with a smaller maximum shape or smaller weights, or use another adapter"
        )


def offered(device: str, have: frozenset[str], wanted: frozenset[str] | None) -> frozenset[str]:
    """Return the features that kernels are chosen by: those that are wanted, if the device can run them."""
    if wanted is None:
        return have
    if missing := wanted - have - {GPU, SOFTWARE, MANY_REGISTERS}:
        raise DeviceError(
            f"features: {device} has no {', '.join(sorted(missing))}; it has {', '.join(sorted(have))}"
        )
    return wanted


def upload(device: Device, nbytes: int, label: str, parts: Iterable[tuple[int, Any]]) -> Buffer:
    """Make a buffer, and write these contents to it. See `Device.constant`."""
    buffer = device.storage(nbytes, label)
    try:
        for offset, data in parts:
            if len(data):
                device.write(buffer, offset, data)
    except BaseException:
        device.free(buffer)
        raise
    return buffer
