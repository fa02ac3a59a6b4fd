"""PyTorch programs on any GPU, from Python, by pip alone.

import pteron
program = pteron.load("model.pte")
y = program(x)
"""

from pteron.arrays import GpuArray
from pteron.errors import DeviceError, FormatError, InputError, OutOfMemory, PteronError, UnsupportedError
from pteron.gpu.adapters import adapters
from pteron.method import Method
from pteron.program import Program, load

__version__ = "0.1.0"

__all__ = [
    "DeviceError",
    "FormatError",
    "GpuArray",
    "InputError",
    "Method",
    "OutOfMemory",
    "Program",
    "PteronError",
    "UnsupportedError",
    "adapters",
    "load",
]
