"""A report on the kernels of one device: every route of the built-in cases, next to the limits of the device.

The report is one JSON document. Somebody who has a GPU can send it to somebody who has not.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from pteron._util.progress import Progress
from pteron.api.profiling.kernel_timer import KernelTimer
from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ir.values import Tensor, Value
from pteron.compiler.plan.routes import ByName, route_key
from pteron.compiler.sketch import found
from pteron.engine.devices.adapter import Adapter
from pteron.engine.devices.device import Device
from pteron.engine.measured.device_cache import kernel_version
from pteron.engine.steps import Step
from pteron.errors import DeviceError, PteronError
from pteron.tools.tune.roofline import Ceilings, measure_ceilings
from pteron.tools.verify.catalogue.arguments import Drawing, T
from pteron.tools.verify.catalogue.timed import TIMED, TimedCase
from pteron.tools.verify.single_node import open_graph

FORMAT, VERSION = "pteron kernel report", 1


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


def make_report(
    device: Device, seconds: float, cases: Iterable[TimedCase] | None = None, progress: Progress | None = None
) -> dict[str, Any]:
    """Time every route of every case; by default of all built-in cases.

    After `seconds` no further route is begun. The report then lists the cases that are missing.
    """
    from pteron import __version__

    if device.adapter is None:
        raise DeviceError(f"kernels cannot be timed on {device.name}: open an adapter of this machine")
    deadline, timer = Deadline(seconds), KernelTimer(device)
    runner = CaseRunner(device, timer, measure_ceilings(device, timer), deadline)
    results = _run_all(runner, list(TIMED if cases is None else cases), progress)
    return {
        "format": FORMAT,
        "format_version": VERSION,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "pteron": __version__,
        "kernels": kernel_version(),
        "device": _describe(device.adapter, device.route_features),
        "clock": timer.clock,
        "seconds_allowed": seconds,
        "seconds_spent": round(deadline.spent, 1),
        "ceilings": asdict(runner.ceilings),
        **results,
    }


def _run_all(runner: CaseRunner, cases: Sequence[TimedCase], progress: Progress | None) -> dict[str, Any]:
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


def _describe(adapter: Adapter, route_features: Iterable[str]) -> dict[str, Any]:
    return {
        "name": adapter.name,
        "kind": adapter.kind,
        "backend": adapter.backend,
        "driver": adapter.driver,
        "features": sorted(adapter.features),
        "route_features": sorted(route_features),
        "limits": dict(sorted(adapter.limits.items())),
    }


@dataclass(frozen=True, slots=True)
class CaseRunner:
    """Times all routes of a case."""

    device: Device
    timer: KernelTimer
    ceilings: Ceilings
    deadline: Deadline

    def run(self, case: TimedCase) -> dict[str, Any]:
        choice, draw = ByName(), Drawing(DType.float32)
        with open_graph(case.graph(draw), self.device, self.device.route_features, choice) as method:
            inputs = [draw(leaf) for leaf in found(case.args[:-1], (T,)) if not leaf.fixed]
            with method.prepare(*inputs) as call:
                work = call.steps()[0].cost
            least = self.ceilings.seconds(work)
            routes: list[dict[str, Any]] = []
            for name in dict.fromkeys(kernel.route for kernel in method.kernels):
                if self.deadline.is_over and routes:
                    break
                choice.route = name
                method.plan_again()
                with method.prepare(*inputs) as call:
                    (step,) = call.steps()
                    if step.route == name:  # else it does not fit the shapes
                        routes.append(self._timed(step, least))
            node = method.graph.nodes[0]
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

    def _timed(self, step: Step, least: float) -> dict[str, Any]:
        timing = self.timer.time(step.commands)
        return {
            "route": step.route,
            "kernels": [{"kernel": run.kernel, "grid": list(run.grid)} for run in step.dispatches],
            "seconds": timing.seconds,
            "runs": timing.runs,
            "percent_of_ceiling": round(100 * least / timing.seconds, 2),
        }


def _shapes(values: Iterable[Value]) -> list[list[int]]:
    return [list(value.max_shape) for value in values if isinstance(value, Tensor)]
