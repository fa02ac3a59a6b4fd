"""Read a kernel report, and learn from it which routes are the fastest."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pteron.errors import FormatError
from pteron.measure import tuning
from pteron.measure.adapter_notes import identity_of, kernel_version
from pteron.measure.kernel_report import FORMAT, VERSION
from pteron.measure.lessons import Lesson, Lessons
from pteron.measure.trials import Measured
from pteron.plan.routes import LiveShapes


@dataclass(frozen=True, slots=True)
class Learned:
    """What a report says about one device."""

    device: str
    identity: str  # of the device, its driver and the kernels
    cases: tuple[Measured, ...]  # with more than one route
    lessons: Lessons

    def save(self) -> Path:
        """Later loads on this device use the lessons. Those of an older report are replaced."""
        return tuning.write_lessons(self.identity, self.lessons)


def learn(path: Path) -> Learned:
    """Read a report. Raises FormatError if it is none, or if it is about other kernels."""
    report = _read(path)
    try:
        if report["kernels"] != kernel_version():
            raise FormatError(
                f"{path} is about the kernels of pteron {report['pteron']} ({report['kernels']}), but this "
                f"installation has others ({kernel_version()}): make a new report with pteron bench --report"
            )
        device = report["device"]
        identity = identity_of(device["name"], device["backend"], device["driver"])
        cases = [(_measured(case), _live(case)) for case in report["cases"]]
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise FormatError(f"{path} is a damaged report ({type(error).__name__}: {error})") from None
    contested = [(measured, live) for measured, live in cases if len(measured.seconds) > 1]
    lessons = Lessons(Lesson.of(measured.key, live, measured.best) for measured, live in contested)
    return Learned(device["name"], identity, tuple(measured for measured, _ in contested), lessons)


def _read(path: Path) -> dict[str, Any]:
    try:
        report = json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError):
        report = None
    if not isinstance(report, dict) or report.get("format") != FORMAT:
        raise FormatError(f"{path} is not a kernel report: make one with pteron bench --report {path.name}")
    if report.get("format_version") != VERSION:
        raise FormatError(
            f"{path} has version {report.get('format_version')} of the report format, not {VERSION}: "
            "make a new report with pteron bench --report"
        )
    return report


def _measured(case: dict[str, Any]) -> Measured:
    seconds = {str(route["route"]): [float(route["seconds"])] for route in case["routes"]}
    return Measured(str(case["key"]), _live(case).size, seconds)


def _live(case: dict[str, Any]) -> LiveShapes:
    def shapes(name: str) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(int(size) for size in shape) for shape in case[name])

    return LiveShapes(shapes("reads"), shapes("writes"))
