"""A device of wgpu-py.

Only this class creates buffers, pipelines and bind groups, so its counters are complete.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from typing import Any

import wgpu

from pteron.compiler.ir.dispatch import GPU, HALF, MANY_REGISTERS, SOFTWARE, SUBGROUP, WIDE, Grid
from pteron.engine.devices.adapter import Adapter
from pteron.engine.devices.device import (
    LIMITS,
    Buffer,
    BufferMapping,
    Checks,
    Command,
    Copy,
    Device,
    Recorded,
    Submission,
    Timer,
    check_binding,
    offered,
    upload,
)
from pteron.engine.devices.wgpu import native, public
from pteron.engine.devices.wgpu.adapters import choose
from pteron.engine.devices.wgpu.timing import TIMESTAMPS, stopwatch
from pteron.engine.devices.wgpu.translate import ERRORS, is_lost, translated, wgpu_errors
from pteron.engine.staging import read_back
from pteron.errors import DeviceError, OutOfMemory, PteronError

_MAPS_STORAGE = "mappable-primary-buffers"
_FEATURES = (HALF, WIDE, "subgroup", TIMESTAMPS)
_BINDING_TYPES = {"read": "read-only-storage", "read_write": "storage", "uniform": "uniform"}


_PROBE = """
@group(0) @binding(0) var<storage, read_write> lanes: array<u32>;
@compute @workgroup_size(64)
fn main(@builtin(subgroup_size) size: u32) { lanes[0] = size; }
"""


# Subgroup sizes by adapter. Only a kernel can measure them.
_subgroup_sizes: dict[str, int] = {}

SPAWN = (
    "start workers with multiprocessing.get_context('spawn'), or fork before the first program is loaded, "
    "and load it in the child"
)

# A device cannot be used after a fork: the child has the handles, but not the driver's threads.
_open_devices: weakref.WeakSet[WgpuDevice] = weakref.WeakSet()


class _History:
    """What this process, and those it was forked from, have done with GPUs."""

    has_opened = False  # a device, which may be closed by now
    was_forked_after_opening = False


class WgpuDevice(Device):
    """One WebGPU device, with its pipelines."""

    adapter: Adapter

    def __init__(
        self, wanted: str | int | Adapter | None = None, features: Iterable[str] | None = None
    ) -> None:
        _check_not_forked()
        _History.has_opened = True
        self.adapter = wanted if isinstance(wanted, Adapter) else choose(wanted)
        self.limits = {name: self.adapter.limits[name] for name in LIMITS if name in self.adapter.limits}
        # The host writes into the storage of a software adapter. On a GPU, such memory would be slow.
        wanted_features = (*_FEATURES, _MAPS_STORAGE) if self.adapter.is_software else _FEATURES
        self.features = frozenset(f for f in wanted_features if f in self.adapter.features)
        self.lock = threading.RLock()
        self.allocations = 0
        self.compilations = 0
        with wgpu_errors(f"cannot open {self.adapter}"):
            self._device = self.adapter.handle.request_device_sync(
                label="pteron", required_features=sorted(self.features), required_limits=self.limits
            )
        self.calls = native if native.AVAILABLE else public
        self._wanted_features = None if features is None else frozenset(features)
        self.timed: Callable[[Any, Iterable[Command]], None] | None = None  # set while kernels are timed
        self._buffers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._pipelines: dict[str, Any] = {}
        self._compiling = threading.Lock()  # a text is compiled once, also if two threads ask for it
        self._layouts: dict[Any, Any] = {}  # of the bind group of each pipeline
        self._unusable: Callable[[], PteronError] | None = None
        _open_devices.add(self)
        if features is not None:
            self.route_features  # noqa: B018  refuses now what the adapter does not have

    @property
    def name(self) -> str:
        return self.adapter.name

    @property
    def is_software(self) -> bool:
        return self.adapter.is_software

    @property
    def allocated_nbytes(self) -> int:
        with self.lock:
            return sum(buffer.size for buffer in self._buffers)

    def check_usable(self) -> None:
        if self._unusable is not None:
            raise self._unusable()

    @property
    def is_lost(self) -> bool:
        return is_lost(self._device)

    def after_fork(self) -> None:
        """Called in the child after a fork. The child must not use this device."""
        self.lock = threading.RLock()  # a thread of the parent may hold the old lock
        self._unusable = lambda: DeviceError(
            "this program was loaded in the parent process, and a GPU device cannot be used after a fork: "
            + SPAWN
        )

    @cached_property
    def route_features(self) -> frozenset[str]:
        found = {SOFTWARE if self.adapter.is_software else GPU}
        if "subgroup" in self.features and self._smallest_subgroup() >= 8:
            found.add(SUBGROUP)
        if self.adapter.has_many_registers:
            found.add(MANY_REGISTERS)
        return offered(self.name, frozenset(found | (self.features & {HALF, WIDE})), self._wanted_features)

    def _smallest_subgroup(self) -> int:
        """The number of lanes in a subgroup, measured by a kernel: adapters report only a wide range."""
        key = str(self.adapter)
        if key not in _subgroup_sizes:
            label = "subgroup probe"
            pipeline, buffer = self.pipeline(_PROBE, label, ["read_write"]), self.storage(16, label)
            group = self.bind_group(pipeline, [(buffer, 0, 16)], label)
            self.submit((), [self.command(pipeline, group, (1, 1, 1))], ())
            _subgroup_sizes[key] = read_back(
                self, buffer, 16, lambda data: int.from_bytes(data[:4], "little")
            )
            self.free(buffer)
        return _subgroup_sizes[key]

    # -- buffers --------------------------------------------------------------------------------

    def storage(self, nbytes: int, label: str) -> Any:
        return self._storage(nbytes, label, 0)

    def _storage(self, nbytes: int, label: str, more_usage: int) -> Any:
        check_binding(self, nbytes, label)
        usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST
        return self._buffer(nbytes, usage | more_usage, label)

    def constant(self, nbytes: int, label: str, parts: Iterable[tuple[int, Any]]) -> Any:
        if not self._maps_storage:
            return upload(self, nbytes, label, parts)
        buffer = self._storage(nbytes, label, wgpu.BufferUsage.MAP_WRITE)
        try:
            with wgpu_errors("upload", self._device):
                native.fill(buffer, nbytes, parts)
        except BaseException:
            self.free(buffer)
            raise
        return buffer

    @property
    def _maps_storage(self) -> bool:
        """Whether the host may write into storage itself."""
        return _MAPS_STORAGE in self.features and self.calls is native

    def uniform(self, nbytes: int, label: str) -> Any:
        return self._buffer(nbytes, wgpu.BufferUsage.UNIFORM | wgpu.BufferUsage.COPY_DST, label)

    def staging(self, nbytes: int, label: str) -> Any:
        return self._buffer(nbytes, wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST, label)

    def _buffer(self, nbytes: int, usage: int, label: str) -> Any:
        self.check_usable()
        try:
            with wgpu_errors(f"{label}: cannot allocate {nbytes:,} bytes", self._device):
                mapped = bool(usage & wgpu.BufferUsage.MAP_WRITE)
                buffer = self._device.create_buffer(
                    label=label, size=nbytes, usage=usage, mapped_at_creation=mapped
                )
        except OutOfMemory as error:
            raise OutOfMemory(f"{error} ({self.allocated_nbytes:,} bytes are in use)") from None
        self._buffers.add(buffer)
        self.allocations += 1
        return buffer

    def free(self, buffer: Any) -> None:
        self._buffers.discard(buffer)
        buffer.destroy()

    def write(self, buffer: Any, offset: int, data: Any) -> None:
        """Copy host bytes into a buffer. WebGPU writes multiples of four bytes, so the end is padded."""
        view = memoryview(data).cast("B")
        whole = len(view) & ~3
        try:
            if whole:
                self.calls.write(self._device, buffer, offset, view[:whole])
            if whole < len(view):
                self.calls.write(self._device, buffer, offset + whole, bytes(view[whole:]).ljust(4, b"\0"))
        except ERRORS as error:
            raise translated("upload", error, self._device) from error

    # -- pipelines ------------------------------------------------------------------------------

    def pipeline(self, source: str, label: str, kinds: Sequence[str]) -> Any:
        with self._compiling:
            known = self._pipelines.get(source)
            if known is None:
                with wgpu_errors(f"kernel {label}", self._device):
                    known = self._pipelines[source] = self._compile(source, label, kinds)
                self.compilations += 1
            return known

    def _compile(self, source: str, label: str, kinds: Sequence[str]) -> Any:
        entries = [
            {"binding": i, "visibility": wgpu.ShaderStage.COMPUTE, "buffer": {"type": _BINDING_TYPES[kind]}}
            for i, kind in enumerate(kinds)
        ]
        layout = self._device.create_bind_group_layout(label=label, entries=entries)
        pipeline_layout = self._device.create_pipeline_layout(label=label, bind_group_layouts=[layout])
        checks = Checks.needed(source, self.adapter.is_software)
        module = self.calls.shader_module(self._device, label, source, checks)
        pipeline = self._device.create_compute_pipeline(
            label=label, layout=pipeline_layout, compute={"module": module, "entry_point": "main"}
        )
        self._layouts[pipeline] = layout
        return pipeline

    def bind_group(self, pipeline: Any, buffers: Iterable[tuple[Any, int, int]], label: str) -> Any:
        with wgpu_errors(label, self._device):
            return self.calls.bind_group(self._device, self._layouts[pipeline], buffers, label)

    # -- running --------------------------------------------------------------------------------

    def command(self, pipeline: Any, group: Any, grid: Grid) -> Command:
        resolved: Command = self.calls.command(pipeline, group, grid)
        return resolved

    def submit(
        self, before: Iterable[Copy], commands: Iterable[Command], after: Iterable[Copy]
    ) -> Submission:
        try:
            if self.timed is None:
                return self.calls.submit(self._device, before, commands, after)
            return public.submit(self._device, before, commands, after, self.timed)
        except ERRORS as error:
            raise translated("run", error, self._device) from error

    @property
    def can_record(self) -> bool:
        return self.timed is None

    def record(self, commands: Iterable[Command], after: Iterable[Copy]) -> Recorded:
        try:
            return self.calls.record(self._device, (), commands, after)
        except ERRORS as error:
            raise translated("run", error, self._device) from error

    def submit_recorded(self, recorded: Recorded) -> Submission:
        try:
            return self.calls.submit_recorded(self._device, recorded)
        except ERRORS as error:
            raise translated("run", error, self._device) from error

    def warm_up(self, commands: Sequence[Command], done: Callable[[int], None] | None = None) -> None:
        if done is None:
            self.submit((), commands, ())
            return
        for number, command in enumerate(commands, 1):
            self.submit((), [command], ())
            self.wait()
            done(number)

    @property
    def timer(self) -> Timer | None:
        return partial(stopwatch, self) if TIMESTAMPS in self.features else None

    def map(self, staging: Any, nbytes: int, submission: Submission) -> BufferMapping:
        mapping: BufferMapping = self.calls.map(self._device, staging, nbytes, submission)
        return mapping

    def unmap(self, staging: Any) -> None:
        self.calls.unmap(staging)

    def wait(self) -> None:
        with wgpu_errors("wait", self._device):
            self.calls.wait(self._device)

    def clear(self, parts: Iterable[tuple[Buffer, int, int]]) -> None:
        with wgpu_errors("clear", self._device):
            encoder = self._device.create_command_encoder()
            for buffer, offset, nbytes in parts:
                encoder.clear_buffer(buffer, offset, nbytes)
            self._device.queue.submit([encoder.finish()])

    def reopen(self) -> WgpuDevice:
        return WgpuDevice(self.adapter, self._wanted_features)

    def close(self) -> None:
        with self.lock:
            if self._unusable is None:
                self._unusable = lambda: PteronError("the device is closed")
                self._pipelines.clear()
                self._layouts.clear()
                self._device.destroy()


def _check_not_forked() -> None:
    """The driver in this process waits for threads that only the parent has: a call would never end."""
    if _History.was_forked_after_opening:
        raise DeviceError(
            f"the parent process opened a GPU before it forked this process, which cannot use any: {SPAWN}"
        )


def _mark_forked() -> None:
    if not _History.has_opened:
        return
    _History.was_forked_after_opening = True
    native.never_release()
    for device in _open_devices:
        device.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_mark_forked)
