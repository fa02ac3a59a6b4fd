"""One call with a timestamp around every kernel."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pteron.gpu.wgpu.timing import has_timestamps, stopwatch
from pteron.gpu.wgpu.wgpu_device import WgpuDevice
from pteron.measure.profile import NodeProfile, node_profiles
from pteron.method import Method


@dataclass(frozen=True, slots=True)
class WatchedCall:
    outputs: list[Any]
    begin: int  # nanoseconds of the host's clock
    end: int
    nodes: tuple[NodeProfile, ...]  # without times if the device has no timestamps


def watch_call(method: Method, inputs: Sequence[Any]) -> WatchedCall:
    device = method.device
    with device.lock:
        if not isinstance(device, WgpuDevice) or not has_timestamps(device):
            begin = time.perf_counter_ns()
            outputs = method.execute(inputs)
            return WatchedCall(outputs, begin, time.perf_counter_ns(), tuple(node_profiles(method, [])))
        with stopwatch(device) as watch:
            begin = time.perf_counter_ns()
            outputs = method.execute(inputs)
            end = time.perf_counter_ns()
            return WatchedCall(outputs, begin, end, tuple(node_profiles(method, [watch.read()])))
