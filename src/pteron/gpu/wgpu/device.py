"""The device: about a dozen methods between Pteron and a WebGPU implementation.

Nothing else creates buffers, pipelines or bind groups, so the two counters here are the truth
about allocations and compilations.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any

import wgpu

from pteron.errors import DeviceError, OutOfMemory, PteronError
from pteron.gpu.wgpu import native, public
from pteron.gpu.wgpu.adapters import Adapter, choose
from pteron.gpu.wgpu.public import Command, Copy
from pteron.gpu.wgpu.trusted import shader_module
from pteron.ir.dispatch import GPU, HALF, SOFTWARE, SUBGROUP, Grid

_FEATURES = ("shader-f16", "subgroup", "timestamp-query")
_LIMITS = (
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
_BINDING_TYPES = {"read": "read-only-storage", "read_write": "storage", "uniform": "uniform"}


_PROBE = """
@group(0) @binding(0) var<storage, read_write> lanes: array<u32>;
@compute @workgroup_size(64)
fn main(@builtin(subgroup_size) size: u32) { lanes[0] = size; }
"""


class Doing:
    """Turns wgpu's errors into ours, with what was being done."""

    __slots__ = ("what",)

    def __init__(self, what: str) -> None:
        self.what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, (wgpu.GPUError, RuntimeError)) or isinstance(error, PteronError):
            return
        out_of_memory = isinstance(error, wgpu.GPUError) and "memory" in str(error).lower()
        raise (OutOfMemory if out_of_memory else DeviceError)(f"{self.what}: {error}") from error


class Device:
    """One WebGPU device, with its pipelines. Safe to share between threads."""

    def __init__(self, wanted: str | int | Adapter | None = None) -> None:
        self.adapter = wanted if isinstance(wanted, Adapter) else choose(wanted)
        self.limits = {name: self.adapter.limits[name] for name in _LIMITS if name in self.adapter.limits}
        self.features = frozenset(f for f in _FEATURES if f in self.adapter.features)
        self.lock = threading.RLock()
        self.allocations = 0
        self.compilations = 0
        self.allocated_nbytes = 0
        with Doing(f"cannot open {self.adapter}"):
            self._device = self.adapter.handle.request_device_sync(
                label="pteron", required_features=sorted(self.features), required_limits=self.limits
            )
        self.calls = native if native.AVAILABLE else public
        self._pipelines: dict[str, Any] = {}
        self._fence: Any = None
        self.record: Callable[[Any, Iterable[Command]], None] | None = None  # a stopwatch, while there is one

    @property
    def uniform_alignment(self) -> int:
        return self.limits.get("min-uniform-buffer-offset-alignment", 256)

    @cached_property
    def route_features(self) -> frozenset[str]:
        """What kind of device this is, and what kernels may use here beyond the portable floor."""
        found = {SOFTWARE if self.adapter.is_software else GPU}
        if "subgroup" in self.features and self._smallest_subgroup() >= 8:
            found.add(SUBGROUP)
        if HALF in self.features:
            found.add(HALF)
        return frozenset(found)

    def _smallest_subgroup(self) -> int:
        """How many lanes share a subgroup. A software adapter states a range, so it is asked by a kernel."""
        stated = int(self.adapter.handle.info.get("stackgroup_min_size", 0) or 0)
        if stated >= 8 or not self.adapter.is_software:
            return stated
        pipeline = self.pipeline(_PROBE, "subgroup probe", ["read_write"])
        buffer, staging = self.storage(16, "subgroup probe"), self.staging(16, "subgroup probe")
        group = self.bind_group(pipeline, [(buffer, 0, 16)], "subgroup probe")
        self.run((), [self.command(pipeline, group, (1, 1, 1))], [(buffer, 0, staging, 0, 16)])
        with self.mapped(staging, 16) as data:
            lanes = int.from_bytes(bytes(data[:4]), "little")
        self.free(buffer)
        self.free(staging)
        return lanes

    # -- buffers --------------------------------------------------------------------------------

    def storage(self, nbytes: int, label: str) -> Any:
        """A buffer for tensors."""
        limit = min(self.limits["max-buffer-size"], self.limits["max-storage-buffer-binding-size"])
        if nbytes > limit:
            raise OutOfMemory(
                f"{label} needs {nbytes:,} bytes, but {self.adapter.name} binds at most {limit:,} at once: "
                "export the program with a smaller maximum shape"
            )
        usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST
        return self._buffer(nbytes, usage, label)

    def uniform(self, nbytes: int, label: str) -> Any:
        return self._buffer(nbytes, wgpu.BufferUsage.UNIFORM | wgpu.BufferUsage.COPY_DST, label)

    def staging(self, nbytes: int, label: str) -> Any:
        """A buffer that the host can map for reading."""
        return self._buffer(nbytes, wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST, label)

    def _buffer(self, nbytes: int, usage: int, label: str) -> Any:
        with Doing(f"{label}: cannot allocate {nbytes:,} bytes"):
            buffer = self._device.create_buffer(label=label, size=nbytes, usage=usage)
        self.allocations += 1
        self.allocated_nbytes += nbytes
        return buffer

    def free(self, buffer: Any) -> None:
        self.allocated_nbytes -= buffer.size
        buffer.destroy()

    def write(self, buffer: Any, offset: int, data: Any) -> None:
        """Copy host bytes into a buffer. WebGPU writes whole words, so a ragged end is padded."""
        view = memoryview(data).cast("B")
        whole = len(view) & ~3
        with Doing("upload"):
            if whole:
                self.calls.write(self._device, buffer, offset, view[:whole])
            if whole < len(view):
                self.calls.write(self._device, buffer, offset + whole, bytes(view[whole:]).ljust(4, b"\0"))

    # -- pipelines ------------------------------------------------------------------------------

    def pipeline(self, source: str, label: str, kinds: Sequence[str]) -> Any:
        """The compute pipeline of a shader text, compiled once. `kinds` says how each binding is used."""
        known = self._pipelines.get(source)
        if known is None:
            with Doing(f"kernel {label}"):
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
        module = shader_module(self._device, label, source)
        return self._device.create_compute_pipeline(
            label=label, layout=pipeline_layout, compute={"module": module, "entry_point": "main"}
        )

    def bind_group(self, pipeline: Any, buffers: Iterable[tuple[Any, int, int]], label: str) -> Any:
        """Bind (buffer, offset, nbytes) in the order of the shader's bindings."""
        entries = [
            {"binding": i, "resource": {"buffer": buffer, "offset": offset, "size": nbytes}}
            for i, (buffer, offset, nbytes) in enumerate(buffers)
        ]
        with Doing(label):
            return self._device.create_bind_group(
                label=label, layout=pipeline.get_bind_group_layout(0), entries=entries
            )

    # -- running --------------------------------------------------------------------------------

    def command(self, pipeline: Any, group: Any, grid: Grid) -> Command:
        """One dispatch, for `run`. Whoever holds it keeps the pipeline and the group alive."""
        resolved: Command = self.calls.command(pipeline, group, grid)
        return resolved

    def run(self, before: Iterable[Copy], commands: Iterable[Command], after: Iterable[Copy]) -> None:
        """Copies, then kernels in one pass, then copies: one encoder, one submit."""
        with Doing("run"):
            if self.record is None:
                self.calls.submit(self._device, before, commands, after)
            else:
                public.submit(self._device, before, commands, after, self.record)

    def finish(self) -> None:
        """Wait until everything submitted so far has been done."""
        with Doing("wait"):
            if self._fence is None:
                self._fence = self._buffer(16, wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST, "fence")
            self.clear(self._fence)
            with self.mapped(self._fence, 16):
                pass

    def clear(self, buffer: Any) -> None:
        with Doing("clear"):
            encoder = self._device.create_command_encoder()
            encoder.clear_buffer(buffer)
            self._device.queue.submit([encoder.finish()])

    def mapped(self, staging: Any, nbytes: int) -> AbstractContextManager[memoryview]:
        """The first bytes of a staging buffer, as of now, while the block lasts."""
        with Doing("read-back"):
            found: AbstractContextManager[memoryview] = self.calls.Mapped(self._device, staging, nbytes)
            return found

    def close(self) -> None:
        self._pipelines.clear()
        self._device.destroy()
