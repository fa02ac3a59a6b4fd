"""One open device for all programs on the same adapter. It is closed after the last of them.

A device costs memory and time to open, and programs on one device can exchange arrays.
"""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Any

from pteron._util.browser import IN_BROWSER
from pteron.engine.devices.adapter import Adapter
from pteron.engine.devices.device import Device
from pteron.engine.devices.opening import find_adapter, open_device, open_device_async
from pteron.errors import PteronError


class SharedDevices:
    """The devices that are open now, and the number of their users."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[str, Device] = {}  # by adapter
        self._users: dict[int, int] = {}  # by the id of the device

    def borrow(self, wanted: str | int | Adapter | None) -> Device:
        """Return the device of an adapter. Open it if it is not open or lost."""
        adapter = wanted if isinstance(wanted, Adapter) else find_adapter(wanted)
        key = f"{adapter.index} {adapter}"
        with self._lock:
            device = self._open.get(key)
            if device is None or not _is_usable(device):
                device = self._open[key] = open_device(adapter)
            self._users[id(device)] = self._users.get(id(device), 0) + 1
            return device

    def give_back(self, device: Device) -> None:
        """Close a device after its last user. One that was not borrowed is closed at once."""
        with self._lock:
            left = self._users.pop(id(device), 1) - 1
            if left:
                self._users[id(device)] = left
                return
            self._open = {key: other for key, other in self._open.items() if other is not device}
        device.close()


def _is_usable(device: Device) -> bool:
    try:
        device.check_usable()
    except PteronError:
        return False
    return not device.is_lost


_devices = SharedDevices()


def _forget_those_of_the_parent() -> None:
    global _devices
    _devices = SharedDevices()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_those_of_the_parent)


def borrow(wanted: str | int | Adapter | None = None) -> Device:
    """Return the shared device of an adapter; in a browser, a new device."""
    return open_device(wanted) if IN_BROWSER else _devices.borrow(wanted)


async def borrow_async(wanted: Any = None) -> Device:
    """Do as `borrow`, without blocking the event loop."""
    if IN_BROWSER:
        return await open_device_async(wanted)
    return await asyncio.to_thread(_devices.borrow, wanted)


def give_back(device: Device) -> None:
    """Give a borrowed device back. It is closed after its last user."""
    _devices.give_back(device)
