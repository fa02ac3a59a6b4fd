"""Fixtures that enforce the requirements of test folders in CONTRIBUTING.md."""

from __future__ import annotations

import sys
from typing import Any, NoReturn

import pytest

TORCH = ("torch", "executorch", "torchao")


@pytest.fixture(autouse=True)
def no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing torch fails, even if an earlier test of this process imported it."""
    for name in TORCH:
        monkeypatch.setitem(sys.modules, name, None)


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening a device fails."""
    import wgpu.backends.wgpu_native as native

    def refuse(*args: Any, **options: Any) -> NoReturn:
        raise AssertionError("this folder's tests need no GPU (see CONTRIBUTING.md), but one opened a device")

    monkeypatch.setattr(native.GPUAdapter, "request_device_sync", refuse)
