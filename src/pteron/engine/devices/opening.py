"""List the GPUs of this machine, and open one.

pteron.adapters()                       # best first
device = pteron.open_device("NVIDIA")   # by index or part of the name; default: the best

In a browser, `await open_device_async()` opens the GPU that the browser chooses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

from pteron._util.browser import IN_BROWSER
from pteron.engine.devices.adapter import Adapter
from pteron.engine.devices.device import Device
from pteron.engine.devices.wgpu.adapters import REMEDY, adapters, opengl_names
from pteron.engine.devices.wgpu.adapters import choose as find_adapter
from pteron.engine.staging import read_back
from pteron.errors import PteronError

__all__ = [
    "REMEDY",
    "Adapter",
    "Device",
    "adapters",
    "find_adapter",
    "open_device",
    "open_device_async",
    "opengl_names",
    "try_kernel",
]

Features = Iterable[str] | None


def _open_wgpu(wanted: Any, features: Features) -> Device:
    from pteron.engine.devices.wgpu.wgpu_device import WgpuDevice

    return WgpuDevice(wanted, features)


async def _open_browser_async(wanted: Any, features: Features) -> Device:
    from pteron.engine.devices.web.web_device import WebDevice

    return await WebDevice.open(wanted, features)


def _open_browser(wanted: Any, features: Features) -> Device:
    from pteron.engine.devices.web.waiting import run_until_done

    return run_until_done(_open_browser_async(wanted, features))


@dataclass(frozen=True, slots=True)
class Backend:
    """How the devices of a library are opened, in a thread and in an event loop."""

    open: Callable[[Any, Features], Device]
    open_async: Callable[[Any, Features], Awaitable[Device]] | None = None  # None: `open` in another thread


# A further one needs a row here, and a class that passes tests/devices.
BACKENDS = {"wgpu": Backend(_open_wgpu), "browser": Backend(_open_browser, _open_browser_async)}


def _backend() -> Backend:
    return BACKENDS["browser" if IN_BROWSER else "wgpu"]


def open_device(wanted: str | int | Adapter | None = None, *, features: Features = None) -> Device:
    """Open an adapter, to share it between programs.

    Args:
        wanted: An adapter, its index in `adapters()`, a part of its name, or `"software"`: an adapter that
            runs on the CPU. Default: the variable `PTERON_DEVICE`, else the best adapter.
        features: Choose kernels as for a device with these features: some of `device.route_features`.
            Default: all that the adapter has.

    Returns:
        An open device. Pass it to `pteron.load(..., device=device)`, and close it after the programs.

    Raises:
        DeviceError: No adapter matches. The message lists the adapters.

    Example:
        ```python
        device = pteron.open_device("NVIDIA")
        a = pteron.load("a.pte", device=device)
        b = pteron.load("b.pte", device=device)
        ```
    """
    return _backend().open(wanted, features)


async def open_device_async(
    wanted: str | int | Adapter | None = None, *, features: Features = None
) -> Device:
    """Open an adapter like `open_device`, without blocking the event loop.

    Args:
        wanted: As for `open_device`. A browser does not list its adapters: there, it is
            `"high-performance"`, `"low-power"` or None.
        features: As for `open_device`.

    Returns:
        An open device. Pass it to `pteron.load_async(..., device=device)`, and close it after the programs.

    Raises:
        DeviceError: There is no usable GPU adapter.
    """
    backend = _backend()
    if backend.open_async is None:
        return await asyncio.to_thread(backend.open, wanted, features)
    return await backend.open_async(wanted, features)


def try_kernel(adapter: Adapter) -> str | None:
    """Double four numbers on an adapter. Returns None if this works, else the error."""
    source = """
@group(0) @binding(0) var<storage, read_write> x: array<u32>;
@compute @workgroup_size(4) fn main(@builtin(global_invocation_id) id: vec3<u32>) { x[id.x] = 2u * x[id.x]; }
"""
    numbers = memoryview(bytes(range(16))).cast("I")
    try:
        device = open_device(adapter)
        try:
            buffer = device.storage(16, "numbers")
            device.write(buffer, 0, numbers)
            pipeline = device.pipeline(source, "doctor", ["read_write"])
            group = device.bind_group(pipeline, [(buffer, 0, 16)], "doctor")
            device.submit((), [device.command(pipeline, group, (1, 1, 1))], ())
            doubled = read_back(device, buffer, 16, lambda data: data.cast("I").tolist())
        finally:
            device.close()
    except PteronError as error:
        return str(error)
    expected = [2 * n & 0xFFFFFFFF for n in numbers]
    return None if doubled == expected else f"a kernel computed {doubled} instead of {expected}"
