"""Does every kernel compute the right results on this GPU and driver?

    report = run_selftest(device)      # `pteron doctor --thorough`
    report.ok, str(report), report.wrong

Each case is a program with one node, and a numpy function that computes the same. Every route runs at several
live shapes, in memory that is poisoned before each call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from pteron._util.progress import Progress
from pteron.api.method import Method
from pteron.compiler.ir.dtypes import DType
from pteron.compiler.plan.routes import ByName
from pteron.compiler.plan.sweep import plan
from pteron.engine.devices.device import Device
from pteron.errors import DeviceLost, PteronError
from pteron.tools.verify.catalogue import Case
from pteron.tools.verify.catalogue import cases as all_cases
from pteron.tools.verify.comparison import compare, worst
from pteron.tools.verify.single_node import open_graph

# (route, live size, results) -> what is wrong
Check = Callable[[str, int, Sequence[Any]], str | None]

CALLS_PER_SIZE = 2  # a race may give the right result once


@dataclass(frozen=True, slots=True)
class WrongResult:
    """A route that computed a wrong result, or none."""

    op: str
    route: str  # its label: name and kernels
    size: int  # the live size of the case
    what: str

    def __str__(self) -> str:
        return f"{self.route}, in {self.op} at live size {self.size}: {self.what}"


@dataclass(frozen=True, slots=True)
class SelfTestReport:
    adapter: str
    routes: int
    results: int
    findings: tuple[WrongResult, ...]

    @property
    def ok(self) -> bool:
        return not self.findings

    @property
    def wrong(self) -> dict[str, list[str]]:
        """The labels of wrong routes, and the operators that showed it."""
        found: dict[str, list[str]] = {}
        for finding in self.findings:
            operators = found.setdefault(finding.route, [])
            if finding.op not in operators:
                operators.append(finding.op)
        return found

    def as_json(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "device": self.adapter,
            "routes": self.routes,
            "results": self.results,
            "wrong": self.wrong,
            "findings": [asdict(finding) for finding in self.findings],
        }

    def __str__(self) -> str:
        done = f"{self.routes} routes of kernels gave {self.results} results"
        if self.ok:
            return f"{self.adapter} can be trusted: {done}, and all are right."
        names = ", ".join(f"{label} ({', '.join(names)})" for label, names in self.wrong.items())
        return f"{self.adapter} cannot be trusted with: {names}. Of {done}, {len(self.findings)} are wrong."


def run_selftest(
    device: Device, cases: Iterable[Case] | None = None, progress: Progress | None = None
) -> SelfTestReport:
    """Run every route of every case.

    cases: default: all. progress: is told how many cases are done, and how many there are.
    """
    cases = list(all_cases() if cases is None else cases)
    routes, results = set(), 0
    findings: list[WrongResult] = []
    with ExitStack() as opened_here:
        for number, each in enumerate(cases):
            if progress is not None:
                progress(f"examining the kernels on {device.name}", number, len(cases))
            for label, found in run_case(device, each):
                routes.add(label)
                results += 1
                findings += [found] if found else []
            if findings and _is_lost(device):
                device = device.reopen()
                opened_here.callback(device.close)
    return SelfTestReport(device.name, len(routes), results, tuple(findings))


def run_case(
    device: Device, each: Case, sizes: Sequence[int] | None = None, check: Check | None = None
) -> Iterator[tuple[str, WrongResult | None]]:
    """The label of each route, once per result, and what is wrong with the result.

    sizes: default: those of the case, in its order. check: looks at right results once more.
    """
    graph, features = each.graph, device.route_features
    calls = [(size, *each.call(size)) for size in sizes or each.sizes]
    for route in plan(graph, features, ByName()).routes[0]:
        label = route.label
        try:
            with open_graph(graph, device, features, ByName(route.name)) as method:
                for size, wrong in _by_route(each.op, method, route.name, calls, check):
                    yield label, None if wrong is None else WrongResult(each.op, label, size, wrong)
        except PteronError as error:  # the driver does not compile it or does not run it
            yield label, WrongResult(each.op, label, max(each.sizes), str(error))
            if _is_lost(device):
                return


def _is_lost(device: Device) -> bool:
    try:
        device.check_usable()
    except DeviceLost:
        return True
    return False


def _by_route(
    op: str,
    method: Method,
    route: str,
    calls: Sequence[tuple[int, list[Any], list[Any]]],
    check: Check | None,
) -> Iterator[tuple[int, str | None]]:
    """The size of each call that the route fits, and what is wrong with the result."""
    for size, inputs, expected in calls:
        for _ in range(CALLS_PER_SIZE):
            with method.prepare(*inputs) as call:
                if call.steps()[0].route != route:
                    break
                call.poison()
                made = call.submit().result()
            wrong = _difference(op, inputs, made, expected)
            yield size, wrong if wrong or check is None else check(route, size, made)


def _difference(op: str, inputs: Sequence[Any], made: Sequence[Any], expected: Sequence[Any]) -> str | None:
    floats = [np.abs(x) for x in inputs if isinstance(x, np.ndarray) and x.dtype.kind == "f" and x.size]
    largest = max((float(x.max()) for x in floats), default=0.0)
    found = worst(
        compare(op, DType[want.dtype.name], np.asarray(got), want, largest)
        for got, want in zip(made, expected, strict=True)
    )
    if not found.is_bad:
        return None
    return (
        f"element {list(found.element)}: expected {found.expected:.7g}, found {found.found:.7g}: "
        f"{found.share:.3g} times the allowed error"
    )
