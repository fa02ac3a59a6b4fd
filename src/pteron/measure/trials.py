"""Timing every route that could do a program's work, on the device at hand.

`pteron tune` asks for it; and a program that is loaded on a GPU for the first time is tried by itself, as
what is known of GPUs in general need not be true of this one. What a software adapter likes is known well
enough.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np

from pteron.errors import DeviceError, PteronError
from pteron.gpu.device import Device
from pteron.gpu.wgpu.adapters import Adapter
from pteron.gpu.wgpu.device import WgpuDevice
from pteron.gpu.wgpu.timing import has_timestamps
from pteron.ir.values import SymInt, Tensor, numel
from pteron.measure import tuning
from pteron.measure.profile import profile
from pteron.measure.tuning import Best, Tuning
from pteron.method import Method
from pteron.plan.routes import Choice, route_key
from pteron.plan.sweep import LiveGraph

CLEARLY = 0.95  # of the default's time: what takes longer is not worth a change
BRIEFLY = 2  # calls to take the median of, when nobody has asked for a measurement

_log = logging.getLogger(__name__)


class Trial:
    """Takes, of every node, the route with one number after another, so that all can be timed."""

    def __init__(self) -> None:
        self.number = 0
        self.most = 1  # routes that fitted one node

    def keeps(self, key: str, route: str) -> bool:
        return True

    def prefers(self, key: str, size: int, fitting: Sequence[str]) -> str:
        self.most = max(self.most, len(fitting))
        return fitting[min(self.number, len(fitting) - 1)]


@dataclass(slots=True)
class Measured:
    """The candidates of one kind of node at one size, in the rule's order, with the seconds they took."""

    key: str
    size: int
    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    @property
    def medians(self) -> dict[str, float]:
        return {route: median(times) for route, times in self.seconds.items()}

    @property
    def default(self) -> str:
        """What is taken without a measurement."""
        return next(iter(self.seconds))

    @property
    def best(self) -> str:
        """The fastest; the default unless another is faster by more than noise."""
        medians = self.medians
        fastest = min(medians, key=lambda route: medians[route])
        return fastest if medians[fastest] < CLEARLY * medians[self.default] else self.default


def measure(method: Method, trial: Trial, calls: Iterable[Sequence[Any]], repeat: int = 5) -> list[Measured]:
    """Time all routes that fit, at the shapes of each call. The method must have been loaded with `trial`."""
    found: dict[tuple[str, int], Measured] = {}
    for inputs in calls:
        trial.number, trial.most = 0, 1
        while trial.number < trial.most:
            method._live.forget()
            for node in profile(method, inputs, repeat=repeat).nodes:
                key = route_key(method.graph.nodes[node.index])
                size = sum(map(numel, node.writes))
                entry = found.setdefault((key, size), Measured(key, size))
                assert node.seconds is not None
                entry.seconds[node.route].append(node.seconds)
            trial.number += 1
    method._live.forget()
    return [entry for entry in found.values() if len(entry.seconds) > 1]


def best_of(measured: Iterable[Measured]) -> Best:
    best: Mapping[str, dict[int, str]] = defaultdict(dict)
    for entry in measured:
        best[entry.key][entry.size] = entry.best
    return dict(best)


def some_sizes(method: Method) -> list[int]:
    """One, the most, and the middle between them on a scale of ratios."""
    most = max((info.max_shape[d] for info in method.inputs for d in info.dynamic_dims), default=1)
    return sorted({1, round(most**0.5), most})


def timed_adapter(device: Device) -> Adapter:
    """The adapter of a device on which kernels can be timed."""
    if not isinstance(device, WgpuDevice) or not has_timestamps(device):
        raise DeviceError(
            f"{device.name} has no timestamp queries, so kernels cannot be timed: "
            "they are chosen by what is known of devices in general"
        )
    return device.adapter


# -- without being asked ----------------------------------------------------------------------------


class Trials:
    """Times the routes of a program that is loaded on a GPU for the first time, and remembers the fastest."""

    def tune(self, live: LiveGraph, device: Device, load: Callable[[Choice], Method]) -> Choice | None:
        if not isinstance(device, WgpuDevice) or not has_timestamps(device):
            return None
        known = live.choice.best if isinstance(live.choice, Tuning) else {}
        undecided = live.contested - known.keys()
        if not undecided:
            return None
        best = _time_routes(load, device, undecided)
        with suppress(OSError):  # nowhere to keep it: it serves this load
            tuning.write(device.adapter, best)
        return tuning.read(device.adapter) or Tuning(best)


def _time_routes(load: Callable[[Choice], Method], device: WgpuDevice, keys: Iterable[str]) -> Best:
    _log.info("timing kernels on %s, once", device.name)
    best: Best = {key: {} for key in keys}  # looked at, even if no call reaches them
    trial = Trial()
    with closing(load(trial)) as method:
        try:
            calls = [_zeros(method, live) for live in some_sizes(method)]
            best |= best_of(measure(method, trial, calls, BRIEFLY))
        except PteronError as error:  # it wants other inputs than zeros; the rules' own order is sound
            _log.info("kernels were not timed: %s", error)
    return best


def _zeros(method: Method, live: int) -> list[Any]:
    """Inputs of zeros, every dynamic dimension `live` long."""
    inputs: list[Any] = []
    for port, info in zip(method.graph.inputs, method.inputs, strict=True):
        if isinstance(port.value, Tensor):
            inputs.append(np.zeros(info.shape_at(live), info.array_dtype))
        else:
            inputs.append(0 if isinstance(port.value, SymInt) else port.value)
    return inputs
