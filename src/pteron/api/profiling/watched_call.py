"""One call with a timestamp around every kernel. An observer may read what each node has written."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from pteron.api.method import Method
from pteron.api.profiling.profile import NodeProfile, node_profiles
from pteron.compiler.ir.values import Node, Value
from pteron.engine.call import Call
from pteron.engine.devices.device import Span


@dataclass(frozen=True, slots=True)
class WatchedCall:
    outputs: list[Any]
    begin: int  # nanoseconds of the host's clock
    end: int
    nodes: tuple[NodeProfile, ...]  # without times if the device has no timestamps


# Told of a node that has run, with a function that reads its tensors.
Observer: TypeAlias = Callable[[Node, Callable[[Value], Any]], None]


def watch_call(method: Method, inputs: Sequence[Any], observe: Observer | None = None) -> WatchedCall:
    """With an observer, the nodes run one by one."""
    device = method.device
    with device.lock:
        if device.timer is None:
            return _watch(method, inputs, list, observe)
        with device.timer() as watch:
            return _watch(method, inputs, lambda: [watch.read()], observe)


def _watch(
    method: Method, inputs: Sequence[Any], spans: Callable[[], list[list[Span]]], observe: Observer | None
) -> WatchedCall:
    begin = time.perf_counter_ns()
    with method.prepare(*inputs) as call:
        if observe is None:
            outputs = call.submit().result()
            times = spans()
        else:
            times = _walk(call, spans, observe)
            outputs = call.results()
        end = time.perf_counter_ns()
        return WatchedCall(outputs, begin, end, tuple(node_profiles(call.steps(), times)))


def _walk(call: Call, spans: Callable[[], list[list[Span]]], observe: Observer) -> list[list[Span]]:
    """Run the steps. The spans of their dispatches are those of one call."""
    seen: list[Span] = []
    known = False
    for step in call.steps():
        step.run()
        if step.dispatches:
            for found in spans():
                known = True
                seen += found
        observe(step.node, call.read)
    return [seen] if known else []
