"""The errors that Pteron raises.

    PteronError
    ├── FormatError        the file is damaged, truncated, or not what it claims to be
    ├── UnsupportedError   the file is valid, but needs something that Pteron does not support
    ├── InputError         a call's arguments do not fit the method      (also a ValueError)
    │   └── RowError       a row of `program.map` cannot be run: `row` is its number, from 0
    ├── OutOfMemory        the program does not fit the device           (also a MemoryError)
    └── DeviceError        no adapter, or the adapter failed             (also a RuntimeError)
        ├── DeviceLost     the GPU was lost: program.reload() loads the program again
        └── DeviceTimeout  the GPU has not finished in time              (also a TimeoutError)

A message names the operator or argument, what was expected, what was given, and what to do.
"""

from __future__ import annotations

__all__ = [
    "DeviceError",
    "DeviceLost",
    "DeviceTimeout",
    "FormatError",
    "InputError",
    "OutOfMemory",
    "PteronError",
    "RowError",
    "UnsupportedError",
]


class PteronError(Exception):
    """The root of all errors that Pteron raises on purpose."""


class FormatError(PteronError):
    """A file's bytes break the rules of its format."""


class UnsupportedError(PteronError):
    """A valid program needs an operator, dtype or feature that Pteron does not support."""


class InputError(PteronError, ValueError):
    """A call's inputs do not fit the method. The method is unchanged: the next good call works."""


class RowError(InputError):
    """A row of `program.map` cannot be run. The other rows can."""

    def __init__(self, row: int, error: BaseException | str) -> None:
        is_ours = isinstance(error, (PteronError, str))
        super().__init__(f"row {row}: {error if is_ours else f'{type(error).__name__}: {error}'}")
        self.row = row
        self.reason = error

    def __reduce__(self) -> tuple[type[RowError], tuple[int, str]]:
        return RowError, (self.row, str(self).partition(": ")[2])


class OutOfMemory(PteronError, MemoryError):
    """A buffer is larger than the device allows, or than its free memory."""


class DeviceError(PteronError, RuntimeError):
    """There is no usable GPU adapter, or the adapter in use failed."""


class DeviceLost(DeviceError):
    """The GPU of a running program was lost: its driver crashed or was reset, or it was unplugged."""


class DeviceTimeout(DeviceError, TimeoutError):
    """The GPU has not finished within the `timeout` of a call. Its result can be asked for again."""

    @classmethod
    def after(cls, seconds: float) -> DeviceTimeout:
        return cls(f"the GPU has not finished within {seconds:g} s: raise the limit with timeout=")
