"""Choose a GPU: list the adapters of this machine, and select the best one or another by name."""

from __future__ import annotations

import os
import sys
import tempfile
from functools import cache
from typing import Any

from pteron._util.browser import IN_BROWSER
from pteron.engine.devices.adapter import Adapter
from pteron.errors import DeviceError

_RANK = {"DiscreteGPU": 0, "IntegratedGPU": 1, "Unknown": 2, "CPU": 3}
_BACKENDS = {"Vulkan", "Metal", "D3D12"}  # wgpu's OpenGL backend lacks compute features

REMEDY = (
    "install a Vulkan driver; Mesa's lavapipe runs on any CPU "
    "(Debian and Ubuntu: apt-get install mesa-vulkan-drivers)"
)


@cache
def adapters() -> tuple[Adapter, ...]:
    """List the usable adapters, best first: discrete GPUs, integrated GPUs, software adapters.

    Raises:
        DeviceError: wgpu cannot be loaded, or this is a browser, which does not list its GPUs.
    """
    if IN_BROWSER:
        raise DeviceError("a browser does not list its GPUs: `await pteron.open_device_async()` opens one")
    handles = [a for a in _handles() if a.info["backend_type"] in _BACKENDS]
    handles.sort(key=lambda a: _RANK.get(a.info["adapter_type"], 2))
    return tuple(
        Adapter(
            index,
            handle.info["device"],
            handle.info["adapter_type"],
            handle.info["backend_type"],
            handle.info["description"],
            frozenset(handle.features),
            dict(handle.limits),
            handle,
            handle.info["vendor_id"],
        )
        for index, handle in enumerate(handles)
    )


def _handles() -> list[Any]:
    """wgpu's adapters, with the drivers loaded."""
    try:
        import wgpu
    except (ImportError, OSError) as error:
        raise DeviceError(
            f"wgpu cannot be loaded ({error}): reinstall it with pip install --force-reinstall wgpu"
        ) from error
    if sys.platform == "linux":  # without a runtime directory, as in containers, Mesa warns on stderr
        os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())
    return list(wgpu.gpu.enumerate_adapters_sync())


def choose(wanted: str | int | None = None) -> Adapter:
    """The best adapter, or the one with this index or with this text in its name.

    `software` is any adapter that runs on the CPU.
    """
    if wanted is None:
        wanted = os.environ.get("PTERON_DEVICE") or None
    found = adapters()
    if not found:
        raise DeviceError(f"no GPU adapter was found: {REMEDY}")
    if wanted is None:
        return found[0]
    if isinstance(wanted, str) and wanted.isdecimal():
        wanted = int(wanted)
    if isinstance(wanted, int):
        matches = [a for a in found if a.index == wanted]
    else:
        matches = [a for a in found if wanted.lower() in _names(a).lower()]
    if not matches:
        have = "; ".join(f"{a.index}: {a}" for a in found)
        hint = f". To get a software adapter, {REMEDY}" if wanted == "software" else ""
        raise DeviceError(f"no GPU adapter matches {wanted!r}; the adapters are {have}{hint}")
    return matches[0]


def _names(adapter: Adapter) -> str:
    """The text in which a name is searched."""
    return f"{adapter}, software" if adapter.is_software else str(adapter)


def opengl_names() -> list[str]:
    """Adapters that cannot be used, because OpenGL lacks compute features."""
    infos = [dict(adapter.info) for adapter in _handles()]
    return [info["device"] for info in infos if info["backend_type"] == "OpenGL"]
