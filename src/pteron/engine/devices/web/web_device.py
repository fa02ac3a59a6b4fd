"""A device on the WebGPU of a browser, in Pyodide.

Python keeps numbers; `webgpu.js` keeps the objects. A submission passes its commands as one block of
integers, because a call from Python into JavaScript takes longer than a dispatch.

Nothing blocks. Errors arrive later: `settle` and the read of a result raise them.
"""

from __future__ import annotations

import asyncio
import re
import struct
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from importlib import import_module, resources
from typing import Any, TypeVar

from pteron.compiler.ir.dispatch import GPU, HALF, SOFTWARE, SUBGROUP, Grid
from pteron.engine.devices.device import LIMITS, Command, Copy, Device, Submission, check_binding, offered
from pteron.engine.devices.web.waiting import run_until_done
from pteron.errors import DeviceError, DeviceLost, DeviceTimeout, InputError, OutOfMemory, PteronError

T = TypeVar("T")

PREFERENCES = ("high-performance", "low-power")
REMEDY = (
    "use a browser with WebGPU, on a page that was loaded over https or from localhost; "
    "chrome://gpu shows why Chrome has none"
)
_USES_SUBGROUPS = re.compile(r"\bsubgroup")


class WebHandle:
    """A buffer, pipeline or bind group of `webgpu.js`. Without references, it is dropped there, too."""

    __slots__ = ("__weakref__", "drop", "id", "size")

    def __init__(self, id: int, size: int, drop: Callable[[int], None]) -> None:
        self.id = id
        self.size = size  # bytes of a buffer
        self.drop = weakref.finalize(self, drop, id)  # it does nothing in a second call
        self.drop.atexit = False


class WebDevice(Device):
    """The GPU that the browser chose. It has no adapter: its name is not enough to store measurements for."""

    def __init__(self, gpu: Any, wanted: str | None, features: Iterable[str] | None) -> None:
        """Await `open` instead."""
        ffi: Any = import_module("pyodide.ffi")
        self._gpu = gpu
        self._to_js: Callable[[Any], Any] = ffi.to_js
        self._wanted = wanted
        self._wanted_features = None if features is None else frozenset(features)
        self.limits = {name: int(gpu.limit(_in_javascript(name))) for name in LIMITS}
        self.lock = threading.RLock()
        self.allocations = 0
        self.compilations = 0
        self._buffers: weakref.WeakSet[WebHandle] = weakref.WeakSet()
        self._pipelines: dict[str, WebHandle] = {}
        self._closed = False

    @classmethod
    async def open(cls, wanted: Any = None, features: Iterable[str] | None = None) -> WebDevice:
        """Open the GPU. `wanted` may be "high-performance" or "low-power"."""
        if wanted is not None and wanted not in PREFERENCES:
            raise InputError(f"device is {wanted!r}: in a browser, expected {' or '.join(PREFERENCES)}")
        js: Any = import_module("js")
        if not hasattr(js.navigator, "gpu"):
            raise DeviceError(f"this browser has no WebGPU: {REMEDY}")
        script = resources.files(__package__).joinpath("webgpu.js").read_text("utf-8")
        try:
            gpu = await import_module("pyodide.code").run_js(script)(wanted)
        except import_module("pyodide.ffi").JsException as error:
            raise DeviceError(f"the browser cannot open a GPU: {error}") from None
        if gpu is None:
            raise DeviceError(f"the browser found no GPU adapter: {REMEDY}")
        return cls(gpu, wanted, features)

    @property
    def name(self) -> str:
        return str(self._gpu.name)

    @property
    def is_software(self) -> bool:
        return bool(self._gpu.isSoftware)

    @property
    def allocated_nbytes(self) -> int:
        return sum(buffer.size for buffer in self._buffers)

    @cached_property
    def route_features(self) -> frozenset[str]:
        found = {SOFTWARE if self.is_software else GPU}
        if self._gpu.has("subgroups") and self._gpu.smallestSubgroup >= 8:
            found.add(SUBGROUP)
        if self._gpu.has(HALF):
            found.add(HALF)
        return offered(self.name, frozenset(found), self._wanted_features)

    def check_usable(self) -> None:
        if self._closed:
            raise PteronError("the device is closed")
        if self._gpu.lost is not None:
            raise _error("call", "lost", self._gpu.lost)

    # -- buffers --------------------------------------------------------------------------------

    def storage(self, nbytes: int, label: str) -> WebHandle:
        check_binding(self, nbytes, label)
        return self._buffer(nbytes, "storage", label)

    def uniform(self, nbytes: int, label: str) -> WebHandle:
        return self._buffer(nbytes, "uniform", label)

    def staging(self, nbytes: int, label: str) -> WebHandle:
        return self._buffer(nbytes, "staging", label)

    def _buffer(self, nbytes: int, usage: str, label: str) -> WebHandle:
        self.check_usable()
        buffer = WebHandle(self._gpu.buffer(nbytes, usage, label), nbytes, self._gpu.destroy)
        self._buffers.add(buffer)
        self.allocations += 1
        return buffer

    def free(self, buffer: Any) -> None:
        self._buffers.discard(buffer)
        buffer.drop()

    def write(self, buffer: Any, offset: int, data: Any) -> None:
        view = memoryview(data).cast("B")
        whole = len(view) & ~3
        if whole:
            self._gpu.write(buffer.id, offset, view[:whole])
        if whole < len(view):
            self._gpu.write(buffer.id, offset + whole, bytes(view[whole:]).ljust(4, b"\0"))

    def clear(self, parts: Iterable[tuple[Any, int, int]]) -> None:
        self._gpu.clear(self._integers((buffer.id, offset, nbytes) for buffer, offset, nbytes in parts))

    # -- pipelines ------------------------------------------------------------------------------

    def pipeline(self, source: str, label: str, kinds: Sequence[str]) -> WebHandle:
        known = self._pipelines.get(source)
        if known is None:
            # wgpu takes this line for granted, and does not know it.
            text = f"enable subgroups;\n{source}" if _USES_SUBGROUPS.search(source) else source
            id = self._gpu.pipeline(text, label, self._to_js(list(kinds)))
            known = self._pipelines[source] = WebHandle(id, 0, self._gpu.drop)
            self.compilations += 1
        return known

    def bind_group(
        self, pipeline: WebHandle, buffers: Iterable[tuple[Any, int, int]], label: str
    ) -> WebHandle:
        places = self._integers((buffer.id, offset, nbytes) for buffer, offset, nbytes in buffers)
        return WebHandle(self._gpu.bindGroup(pipeline.id, places, label), 0, self._gpu.drop)

    # -- running --------------------------------------------------------------------------------

    def command(self, pipeline: WebHandle, group: WebHandle, grid: Grid) -> Command:
        return struct.pack("=5I", pipeline.id, group.id, *grid)

    # It cannot record ahead: JavaScript encodes a call in less time than Python needs to ask for it.
    def submit(
        self, before: Iterable[Copy], commands: Iterable[Command], after: Iterable[Copy]
    ) -> Submission:
        return self._gpu.submit(self._copies(before), self._block(b"".join(commands)), self._copies(after))

    def warm_up(self, commands: Sequence[Command], done: Callable[[int], None] | None = None) -> None:
        """Do nothing: a pipeline of a browser is compiled before it can be used."""

    def _copies(self, copies: Iterable[Copy]) -> Any:
        return self._integers(
            (source.id, start, target.id, place, nbytes)  # type: ignore[attr-defined]
            for source, start, target, place, nbytes in copies
        )

    def _integers(self, rows: Iterable[tuple[int, ...]]) -> Any:
        return self._block(b"".join(struct.pack(f"={len(row)}I", *row) for row in rows))

    def _block(self, integers: bytes) -> Any:
        """A Uint32Array."""
        return self._to_js(memoryview(integers).cast("I"))

    def map(self, staging: Any, nbytes: int, submission: Submission) -> WebMapping:
        return WebMapping(self, staging.id, nbytes, submission)

    def unmap(self, staging: Any) -> None:
        self._gpu.unmap(staging.id)

    def wait(self) -> None:
        run_until_done(self.settle())

    async def settle(self) -> None:
        _check("load", await self._gpu.settle())

    async def after(self, submission: Submission, function: Callable[[], T]) -> T:
        _check("run", await submission)
        return function()

    def reopen(self) -> WebDevice:
        return run_until_done(self.reopen_async())

    async def reopen_async(self) -> WebDevice:
        return await WebDevice.open(self._wanted, self._wanted_features)

    def close(self) -> None:
        """Free everything. A second close does nothing."""
        if not self._closed:
            self._closed = True
            self._pipelines.clear()
            self._gpu.close()


class WebMapping:
    """The first bytes of a staging buffer. The submission that wrote it has also begun to map it."""

    def __init__(self, device: WebDevice, staging: int, nbytes: int, submission: Submission) -> None:
        self._gpu = device._gpu
        self._staging = staging
        self._nbytes = nbytes
        self._submission = submission

    def wait(self, timeout: float | None) -> None:
        if not self._gpu.isMapped(self._staging):
            run_until_done(self._arrive(timeout))

    async def _arrive(self, timeout: float | None) -> None:
        try:
            _check("run", await asyncio.wait_for(self._submission, timeout))
        except TimeoutError:
            raise DeviceTimeout.after(timeout or 0) from None

    @property
    def view(self) -> memoryview:
        return memoryview(self._gpu.mapped(self._staging, self._nbytes).to_bytes())


def _in_javascript(limit: str) -> str:
    first, *rest = limit.split("-")
    return first + "".join(word.capitalize() for word in rest)


def _check(what: str, fault: Any) -> None:
    """Raise the error that `webgpu.js` reports."""
    if fault is not None:
        raise _error(what, fault.kind, fault.message)


def _error(what: str, kind: str, message: str) -> PteronError:
    if kind == "memory":
        return OutOfMemory(f"{what}: {message}")
    if kind == "lost":
        return DeviceLost(f"{what}: the GPU was lost: {message}")
    return DeviceError(f"{what}: {message}")
