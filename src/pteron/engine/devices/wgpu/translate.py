"""Translate wgpu's errors to Pteron's errors, with the operation that failed."""

from __future__ import annotations

from typing import Any

import wgpu

from pteron.errors import DeviceError, DeviceLost, OutOfMemory, PteronError

ERRORS = (wgpu.GPUError, RuntimeError)  # of wgpu


class wgpu_errors:  # noqa: N801  used like a function
    """Translates wgpu's errors by their type. `what` names the operation, `device` is wgpu's."""

    __slots__ = ("device", "what")

    def __init__(self, what: str, device: Any = None) -> None:
        self.what = what
        self.device = device

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ERRORS) and not isinstance(error, PteronError):
            raise translated(self.what, error, self.device) from error


def translated(what: str, error: BaseException, device: Any = None) -> PteronError:
    """The error of Pteron for an error of wgpu, by its type. `device` is wgpu's."""
    if isinstance(error, wgpu.GPUOutOfMemoryError):
        return OutOfMemory(f"{what}: {error}")
    if device is not None and is_lost(device):
        return DeviceLost(f"{what}: the GPU was lost: {error}")
    return DeviceError(f"{what}: {error}")


def is_lost(device: Any) -> bool:
    """Ask a device for an empty command buffer, which only a lost one refuses.

    wgpu has no type for the errors of a lost device: they are errors of validation.
    """
    try:
        device.create_command_encoder().finish()
    except wgpu.GPUError:
        return True
    return False
