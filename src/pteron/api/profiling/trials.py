"""Time all routes that a program's nodes could use, on the current device.

`pteron tune` does this on request. The first load of a program on a GPU does it too, because the default
order of the routes may be wrong for this GPU. On software adapters the default order is good enough.
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

from pteron._util.progress import Progress
from pteron.api.method import Method
from pteron.api.profiling.profile import profile
from pteron.compiler.ir.live import Live
from pteron.compiler.ir.values import SymInt, Tensor, numel
from pteron.compiler.plan.routes import Choice, LiveShapes, route_key
from pteron.compiler.plan.sweep import LiveGraph
from pteron.engine.devices.adapter import Adapter
from pteron.engine.devices.device import Device
from pteron.engine.measured import tuning
from pteron.engine.measured.tuning import Best, Tuning
from pteron.errors import DeviceError, PteronError

FASTER_THAN_DEFAULT = 0.95  # a route must need less than this share of the default's time to be chosen
CALLS_AT_LOAD = 2  # calls per route, when a load measures; `pteron tune` makes more

_log = logging.getLogger(__name__)


class Trial:
    """Makes every node use the route with the current `number`, so that all routes can be timed in turn."""

    def __init__(self) -> None:
        self.number = 0
        self.most = 1  # the largest number of routes that fit one node

    def keeps(self, key: str, route: str) -> bool:
        return True

    def prefers(self, key: str, live: LiveShapes, fitting: Sequence[str]) -> str:
        self.most = max(self.most, len(fitting))
        return fitting[min(self.number, len(fitting) - 1)]


@dataclass(slots=True)
class Measured:
    """The seconds of each candidate route, in the rule's order, for one key and one size."""

    key: str
    size: int
    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    @property
    def medians(self) -> dict[str, float]:
        return {route: median(times) for route, times in self.seconds.items()}

    @property
    def default(self) -> str:
        """The route that is used without a measurement."""
        return next(iter(self.seconds))

    @property
    def best(self) -> str:
        """The fastest route. The default, unless another is clearly faster than it."""
        medians = self.medians
        fastest = min(medians, key=lambda route: medians[route])
        return fastest if medians[fastest] < FASTER_THAN_DEFAULT * medians[self.default] else self.default


def measure(
    method: Method,
    trial: Trial,
    calls: Sequence[Sequence[Any]],
    repeat: int = 5,
    progress: Progress | None = None,
) -> list[Measured]:
    """Time all routes that fit, at the shapes of each call. The method must be loaded with `trial`.

    progress: is told how many trials are done, and how many there are as far as is known.
    """
    found: dict[tuple[str, int], Measured] = {}
    done = 0
    for left, inputs in zip(range(len(calls) - 1, -1, -1), calls, strict=True):
        trial.number, trial.most = 0, 1
        while trial.number < trial.most:
            if progress is not None:
                progress("timing kernels", done, done + (left + 1) * trial.most - trial.number)
            done += 1
            method.plan_again()
            for node in profile(method, inputs, repeat=repeat).nodes:
                key = route_key(method.graph.nodes[node.index])
                size = sum(map(numel, node.writes))
                entry = found.setdefault((key, size), Measured(key, size))
                assert node.seconds is not None
                entry.seconds[node.route].append(node.seconds)
            trial.number += 1
    method.plan_again()
    return [entry for entry in found.values() if len(entry.seconds) > 1]


def best_of(measured: Iterable[Measured]) -> Best:
    best: Mapping[str, dict[int, str]] = defaultdict(dict)
    for entry in measured:
        best[entry.key][entry.size] = entry.best
    return dict(best)


def some_sizes(method: Method) -> list[int]:
    """Three sizes: 1, the maximum, and their geometric mean."""
    most = max((info.max_shape[d] for info in method.inputs for d in info.dynamic_dims), default=1)
    return sorted({1, round(most**0.5), most})


def expected_inputs(method: Method) -> list[list[Any]]:
    """Inputs of zeros: at the shapes that were expected at load, else at three sizes."""
    tensors = [info for info in method.inputs if info.is_tensor]
    calls = method.expected or [
        {info.name: info.shape_at(size) for info in tensors} for size in some_sizes(method)
    ]
    return [_zeros(method, call) for call in calls]


def timed_adapter(device: Device) -> Adapter:
    """The adapter of a device that can time kernels."""
    if device.timer is None or device.adapter is None:
        raise DeviceError(
            f"{device.name} has no timestamp queries, so kernels cannot be timed: "
            "the default order of the routes is used"
        )
    return device.adapter


# -- at the first load ------------------------------------------------------------------------------


class Trials:
    """Times the routes of a program at its first load on a GPU, and stores the fastest."""

    def tune(self, live: LiveGraph, device: Device, load: Callable[[Choice], Method]) -> Choice | None:
        if device.timer is None or device.adapter is None:
            return None
        choice = live.choice
        known = choice.knows if isinstance(choice, Tuning) else lambda key: False
        undecided = {key for key in live.contested if not known(key)}
        if not undecided:
            return None
        best = _time_routes(load, device, undecided)
        with suppress(OSError):  # the cache cannot be written: use the result for this load only
            tuning.write(device.adapter, best)
        return tuning.read(device.adapter) or Tuning(best)


def _time_routes(load: Callable[[Choice], Method], device: Device, keys: Iterable[str]) -> Best:
    _log.info("timing kernels on %s, once", device.name)
    best: Best = {key: {} for key in keys}  # also the keys that no call reaches, to try them only once
    trial = Trial()
    with closing(load(trial)) as method:
        try:
            best |= best_of(measure(method, trial, expected_inputs(method), CALLS_AT_LOAD))
        except PteronError as error:  # the program refuses zeros as inputs: keep the default order
            _log.info("kernels were not timed: %s", error)
    return best


def _zeros(method: Method, call: Mapping[str, Live]) -> list[Any]:
    """Inputs of zeros, in the shapes of a call. Integers that it does not name are 0."""
    inputs: list[Any] = []
    for port, info in zip(method.graph.inputs, method.inputs, strict=True):
        if isinstance(port.value, Tensor):
            shape = call[info.name]
            assert isinstance(shape, tuple)
            inputs.append(np.zeros(shape, info.array_dtype))
        else:
            inputs.append(call.get(info.name, 0) if isinstance(port.value, SymInt) else port.value)
    return inputs
