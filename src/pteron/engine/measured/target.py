"""A device as the compiler sees it: its features, and what was measured on it."""

from __future__ import annotations

from pteron.compiler.pipeline import Target
from pteron.engine.devices.device import Device
from pteron.engine.measured import kernel_blocklist, tuning


def target_of(device: Device) -> Target:
    """The features of a device, and the routes that were measured to be fast or wrong on it."""
    if device.adapter is None:
        return Target(device.route_features)
    examined = kernel_blocklist.read(device.adapter)
    return Target(device.route_features, tuning.read(device.adapter), examined.wrong if examined else None)
