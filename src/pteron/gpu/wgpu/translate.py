"""Translate wgpu's errors to Pteron's errors, with the operation that failed."""

from __future__ import annotations

import wgpu

from pteron.errors import DeviceError, DeviceLost, OutOfMemory, PteronError


class wgpu_errors:  # noqa: N801  used like a function
    """Translates wgpu's errors. `what` names the operation."""

    __slots__ = ("what",)

    def __init__(self, what: str) -> None:
        self.what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, (wgpu.GPUError, RuntimeError)) or isinstance(error, PteronError):
            return
        text = str(error)
        if isinstance(error, wgpu.GPUError) and "memory" in text.lower():
            raise OutOfMemory(f"{self.what}: {error}") from error
        if "device is lost" in text.lower():
            raise DeviceLost(f"{self.what}: the GPU was lost: {error}") from error
        raise DeviceError(f"{self.what}: {error}") from error
