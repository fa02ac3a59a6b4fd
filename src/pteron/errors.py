"""Everything Pteron raises.

    PteronError
    ├── FormatError        the file is damaged, truncated, or not what it claims to be
    ├── UnsupportedError   the file is sound, but asks for something Pteron cannot do
    ├── InputError         a call's arguments do not fit the method      (also a ValueError)
    ├── OutOfMemory        the program does not fit the device           (also a MemoryError)
    └── DeviceError        no adapter, or the adapter failed             (also a RuntimeError)
        └── DeviceLost     the GPU went away: program.reload() brings the program back

A message says which op or argument, what was expected, what came, and what to do.
"""

__all__ = [
    "DeviceError",
    "DeviceLost",
    "FormatError",
    "InputError",
    "OutOfMemory",
    "PteronError",
    "UnsupportedError",
]


class PteronError(Exception):
    """The root of all errors that Pteron raises on purpose."""


class FormatError(PteronError):
    """A file's bytes break the rules of its format."""


class UnsupportedError(PteronError):
    """A sound program asks for an operator, dtype or feature that Pteron does not have."""


class InputError(PteronError, ValueError):
    """A call's inputs do not fit the method. The method is unchanged: the next good call works."""


class OutOfMemory(PteronError, MemoryError):
    """A buffer is larger than the device allows, or than it has left."""


class DeviceError(PteronError, RuntimeError):
    """There is no usable GPU adapter, or the one in use failed."""


class DeviceLost(DeviceError):
    """The GPU went away under a running program: its driver crashed or was reset, or it was unplugged."""
