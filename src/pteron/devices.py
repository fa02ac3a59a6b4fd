"""List the GPUs of this machine, and open one.

pteron.adapters()                       # best first
device = pteron.open_device("NVIDIA")   # by index or part of the name; default: the best

In a browser, `await open_device_async()` opens the GPU that the browser chooses.
"""

from __future__ import annotations

import asyncio

from pteron.browser import IN_BROWSER
from pteron.errors import PteronError
from pteron.gpu.device import Device
from pteron.gpu.staging import read_back
from pteron.gpu.wgpu.adapters import REMEDY, Adapter, adapters, opengl_names
from pteron.gpu.wgpu.adapters import choose as find_adapter

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


def open_device(wanted: str | int | Adapter | None = None) -> Device:
    """Open an adapter, to share it between programs.

    Args:
        wanted: An adapter, its index in `adapters()`, a part of its name, or `"software"`: an adapter that
            runs on the CPU. Default: the variable `PTERON_DEVICE`, else the best adapter.

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
    if IN_BROWSER:
        from pteron.gpu.web.waiting import run_until_done

        return run_until_done(open_device_async(wanted))
    from pteron.gpu.wgpu.wgpu_device import WgpuDevice

    return WgpuDevice(wanted)


async def open_device_async(wanted: str | int | Adapter | None = None) -> Device:
    """Open an adapter like `open_device`, without blocking the event loop.

    Args:
        wanted: As for `open_device`. A browser does not list its adapters: there, it is
            `"high-performance"`, `"low-power"` or None.

    Returns:
        An open device. Pass it to `pteron.load_async(..., device=device)`, and close it after the programs.

    Raises:
        DeviceError: There is no usable GPU adapter.
    """
    if IN_BROWSER:
        from pteron.gpu.web.web_device import WebDevice

        return await WebDevice.open(wanted)
    return await asyncio.to_thread(open_device, wanted)


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
