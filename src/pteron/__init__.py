"""Run PyTorch programs on any GPU, from Python, with only `pip install`.

import pteron
program = pteron.load("model.pte")
y = program(x)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pteron import llm as llm
    from pteron.api.async_program import AsyncMethod, AsyncProgram
    from pteron.api.loading import load, load_async
    from pteron.api.method import Method
    from pteron.api.profiling.profile import profile
    from pteron.api.program import Program
    from pteron.compiler.segments.graph import Batching
    from pteron.engine.arrays import GpuArray, HostArray
    from pteron.engine.devices.opening import adapters, open_device, open_device_async
    from pteron.engine.staging import Pending
    from pteron.engine.state import State
    from pteron.errors import (
        DeviceError,
        DeviceLost,
        DeviceTimeout,
        FormatError,
        InputError,
        OutOfMemory,
        PteronError,
        RowError,
        UnsupportedError,
    )
    from pteron.llm import convert
    from pteron.tools.exporter import export
    from pteron.tools.inspect.check import check
    from pteron.tools.verify import verify

__version__ = "0.1.0"

__all__ = [
    "AsyncMethod",
    "AsyncProgram",
    "Batching",
    "DeviceError",
    "DeviceLost",
    "DeviceTimeout",
    "FormatError",
    "GpuArray",
    "HostArray",
    "InputError",
    "Method",
    "OutOfMemory",
    "Pending",
    "Program",
    "PteronError",
    "RowError",
    "State",
    "UnsupportedError",
    "adapters",
    "check",
    "convert",
    "export",
    "load",
    "load_async",
    "open_device",
    "open_device_async",
    "profile",
    "verify",
]

# Imported at first use: reading a file needs no GPU library, and `pteron --help` needs none of them.
_HOMES = {
    "AsyncMethod": "pteron.api.async_program",
    "AsyncProgram": "pteron.api.async_program",
    "Batching": "pteron.compiler.segments.graph",
    "GpuArray": "pteron.engine.arrays",
    "HostArray": "pteron.engine.arrays",
    "Method": "pteron.api.method",
    "Pending": "pteron.engine.staging",
    "State": "pteron.engine.state",
    "Program": "pteron.api.program",
    "adapters": "pteron.engine.devices.opening",
    "check": "pteron.tools.inspect.check",
    "convert": "pteron.llm",
    "export": "pteron.tools.exporter",
    "load": "pteron.api.loading",
    "load_async": "pteron.api.loading",
    "open_device": "pteron.engine.devices.opening",
    "open_device_async": "pteron.engine.devices.opening",
    "profile": "pteron.api.profiling.profile",
    "verify": "pteron.tools.verify",
}


if not TYPE_CHECKING:  # else every name would have the type Any

    def __getattr__(name: str) -> Any:
        if name == "llm":
            return import_module("pteron.llm")
        if name not in __all__:
            raise AttributeError(f"module 'pteron' has no attribute {name!r}")
        value = getattr(import_module(_HOMES.get(name, "pteron.errors")), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]
