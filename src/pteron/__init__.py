"""Run PyTorch programs on any GPU, from Python, with only `pip install`.

import pteron
program = pteron.load("model.pte")
y = program(x)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pteron.arrays import GpuArray, HostArray
    from pteron.async_program import AsyncMethod, AsyncProgram
    from pteron.devices import adapters, open_device, open_device_async
    from pteron.errors import (
        DeviceError,
        DeviceLost,
        FormatError,
        InputError,
        OutOfMemory,
        PteronError,
        RowError,
        UnsupportedError,
    )
    from pteron.exporting import export
    from pteron.gpu.staging import Pending
    from pteron.gpu.state import State
    from pteron.llm import convert
    from pteron.loading import load, load_async
    from pteron.measure.profile import profile
    from pteron.method import Method
    from pteron.program import Program
    from pteron.report.check import check
    from pteron.segments.graph import Batching
    from pteron.verifying import verify

__version__ = "0.1.0"

__all__ = [
    "AsyncMethod",
    "AsyncProgram",
    "Batching",
    "DeviceError",
    "DeviceLost",
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
    "AsyncMethod": "pteron.async_program",
    "AsyncProgram": "pteron.async_program",
    "Batching": "pteron.segments.graph",
    "GpuArray": "pteron.arrays",
    "HostArray": "pteron.arrays",
    "Method": "pteron.method",
    "Pending": "pteron.gpu.staging",
    "State": "pteron.gpu.state",
    "Program": "pteron.program",
    "adapters": "pteron.devices",
    "check": "pteron.report.check",
    "convert": "pteron.llm",
    "export": "pteron.exporting",
    "load": "pteron.loading",
    "load_async": "pteron.loading",
    "open_device": "pteron.devices",
    "open_device_async": "pteron.devices",
    "profile": "pteron.measure.profile",
    "verify": "pteron.verifying",
}


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
