"""A report on the kernels of one device: every route of the built-in cases, next to the limits of the device.

The report is one JSON document. Somebody who has a GPU can send it to somebody who has not. `pteron tune
--from-report` learns from it which routes are the fastest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias

import numpy as np

from pteron.arrays.numpy_arrays import convert_constant
from pteron.errors import DeviceError, PteronError
from pteron.gpu.device import Device
from pteron.gpu.placement import Placement
from pteron.gpu.wgpu.wgpu_device import WgpuDevice
from pteron.ir.dtypes import DType
from pteron.ir.values import Shape, Tensor, Value
from pteron.ir.work import cost
from pteron.measure.adapter_notes import kernel_version
from pteron.measure.ceilings import Ceilings, measure_ceilings
from pteron.measure.kernel_cases import CASES, KernelCase, case_graph
from pteron.measure.kernel_timer import KernelTimer, Timing
from pteron.method import Method
from pteron.plan.routes import LiveShapes, route_key
from pteron.plan.sweep import plan

FORMAT, VERSION = "pteron kernel report", 1

Progress: TypeAlias = Callable[[str, int, int], None]  # the case, cases done, all cases


class Deadline:
    """A number of seconds, from now on."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._begin = time.monotonic()

    @property
    def spent(self) -> float:
        return time.monotonic() - self._begin

    @property
    def is_over(self) -> bool:
        return self.spent >= self.seconds


class NamedRoute:
    """A choice that keeps every route, and uses the one with the current `name` where it fits."""

    name = ""

    def keeps(self, key: str, route: str) -> bool:
        return True

    def prefers(self, key: str, live: LiveShapes, fitting: Sequence[str]) -> str:
        return self.name if self.name in fitting else fitting[0]


def make_report(
    device: Device,
    seconds: float,
    cases: Iterable[KernelCase] | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Time every route of every case; by default of all built-in cases.

    After `seconds` no further route is begun. The report then lists the cases that are missing.
    """
    from pteron import __version__

    if not isinstance(device, WgpuDevice):
        raise DeviceError(f"kernels cannot be timed on {device.name}: open an adapter of this machine")
    deadline, timer = Deadline(seconds), KernelTimer(device)
    runner = CaseRunner(device, timer, measure_ceilings(device, timer), deadline)
    results = _run_all(runner, list(CASES if cases is None else cases), progress)
    return {
        "format": FORMAT,
        "format_version": VERSION,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "pteron": __version__,
        "kernels": kernel_version(),
        "device": _describe(device),
        "clock": timer.clock,
        "seconds_allowed": seconds,
        "seconds_spent": round(deadline.spent, 1),
        "ceilings": asdict(runner.ceilings),
        **results,
    }


def _run_all(runner: CaseRunner, cases: Sequence[KernelCase], progress: Progress | None) -> dict[str, Any]:
    measured: list[dict[str, Any]] = []
    failed: dict[str, str] = {}
    left_out: list[str] = []
    for number, case in enumerate(cases):
        name = f"{case.family}: {case.name}"
        if runner.deadline.is_over:
            left_out.append(name)
            continue
        if progress is not None:
            progress(name, number, len(cases))
        try:
            measured.append(runner.run(case))
        except PteronError as error:  # for example, the device has too little memory for this case
            failed[name] = str(error)
    return {"cases": measured, "failed": failed, "left_out": left_out}


def _describe(device: WgpuDevice) -> dict[str, Any]:
    adapter = device.adapter
    return {
        "name": adapter.name,
        "kind": adapter.kind,
        "backend": adapter.backend,
        "driver": adapter.driver,
        "features": sorted(adapter.features),
        "route_features": sorted(device.route_features),
        "limits": dict(sorted(adapter.limits.items())),
    }


@dataclass(frozen=True, slots=True)
class CaseRunner:
    """Times all routes of a case."""

    device: WgpuDevice
    timer: KernelTimer
    ceilings: Ceilings
    deadline: Deadline

    def run(self, case: KernelCase) -> dict[str, Any]:
        choice = NamedRoute()
        with _opened(case, self.device, choice) as (method, inputs):
            node, live = method.graph.nodes[0], method._live
            work = cost(node, live.live)
            least = self.ceilings.seconds(work)
            routes: list[dict[str, Any]] = []
            for route in live.routes[0]:
                if self.deadline.is_over and routes:
                    break
                choice.name = route.name
                timing = self._time(method, inputs, route.name)
                if timing is not None:
                    share = round(100 * least / timing.seconds, 2)
                    routes.append(
                        {
                            "route": route.name,
                            "kernels": _kernels(method),
                            "seconds": timing.seconds,
                            "runs": timing.runs,
                            "percent_of_ceiling": share,
                        }
                    )
            return {
                "family": case.family,
                "name": case.name,
                "operator": case.operator,
                "key": route_key(node),
                "reads": _shapes(node.reads),
                "writes": _shapes(node.writes),
                "flops": work.flops,
                "nbytes": work.nbytes,
                "bound": self.ceilings.bound(work),
                "least_seconds": least,
                "routes": routes,
            }

    def _time(self, method: Method, inputs: Sequence[Any], route: str) -> Timing | None:
        """The time of the chosen route; None if it does not fit the shapes."""
        method._live.forget()
        method.execute(inputs)
        taken = method._live.plans[0]
        assert taken is not None
        if taken.route != route:
            return None
        return self.timer.time(method._executor.commands(method._state()))


@contextmanager
def _opened(
    case: KernelCase, device: WgpuDevice, choice: NamedRoute
) -> Iterator[tuple[Method, list[np.ndarray[Any, Any]]]]:
    """The case as a method, and its inputs."""
    generator = np.random.default_rng(0)
    graph = case_graph(case, lambda tensor: _numbers(tensor.shape, tensor.dtype, generator).tobytes())
    weights = Placement(device, convert_constant)
    try:
        method = Method(plan(graph, device.route_features, choice), device, weights)
        try:
            tensors = [port.value for port in graph.inputs if isinstance(port.value, Tensor)]
            yield method, [_numbers(t.max_shape, t.dtype, generator) for t in tensors]
        finally:
            method.close()
    finally:
        weights.close()


def _numbers(shape: Shape, dtype: DType, generator: np.random.Generator) -> np.ndarray[Any, Any]:
    """Floats near 0, or any bytes: the time of a kernel hardly depends on the numbers."""
    if dtype.is_float:
        return generator.uniform(-1, 1, shape).astype(dtype.label)
    high = np.iinfo(dtype.label).max
    return generator.integers(0, high, shape, dtype.label)


def _kernels(method: Method) -> list[dict[str, Any]]:
    launched = [launch for _, launch in method._executor.launched()]
    return [{"kernel": launch.site.kernel.name, "grid": list(launch.grid)} for launch in launched]


def _shapes(values: Iterable[Value]) -> list[list[int]]:
    return [list(value.max_shape) for value in values if isinstance(value, Tensor)]
