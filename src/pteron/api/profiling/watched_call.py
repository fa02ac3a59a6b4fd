"""One call with a timestamp around every kernel."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pteron.api.method import Method
from pteron.api.profiling.profile import NodeProfile, node_profiles
from pteron.engine.devices.device import Span


@dataclass(frozen=True, slots=True)
class WatchedCall:
    outputs: list[Any]
    begin: int  # nanoseconds of the host's clock
    end: int
    nodes: tuple[NodeProfile, ...]  # without times if the device has no timestamps


def watch_call(method: Method, inputs: Sequence[Any]) -> WatchedCall:
    device = method.device
    with device.lock:
        if device.timer is None:
            return _watch(method, inputs, list)
        with device.timer() as watch:
            return _watch(method, inputs, lambda: [watch.read()])


def _watch(method: Method, inputs: Sequence[Any], spans: Callable[[], list[list[Span]]]) -> WatchedCall:
    begin = time.perf_counter_ns()
    with method.prepare(*inputs) as call:
        outputs = call.submit().result()
        end = time.perf_counter_ns()
        return WatchedCall(outputs, begin, end, tuple(node_profiles(call.steps(), spans())))
