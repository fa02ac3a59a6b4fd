"""`pteron.check`: can a program run? Lists all problems before anything runs.

    report = pteron.check("model.pte")
    bool(report), report.findings

It is `pteron.load` on a device that is not there: the same graph is planned, the same kernels are written and
the same constants are converted, but nothing is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pteron._util import html
from pteron.api.loading import load_file
from pteron.api.program import Program
from pteron.compiler.ir.problems import CannotRun, Finding, Problem, findings
from pteron.compiler.lower.bounds import GivenShapes
from pteron.compiler.lower.budget import MAX_NODES
from pteron.engine.devices.device import Device
from pteron.engine.devices.opening import Adapter, open_device
from pteron.engine.devices.recording import RecordingDevice
from pteron.errors import FormatError, OutOfMemory, PteronError
from pteron.pte.file import ProgramFile
from pteron.tools.inspect.inspect import count_operators

__all__ = ["CheckReport", "Finding", "check"]


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The problems of a program. It is true if the program can run.

    Attributes:
        methods: The names of all methods.
        operators: The number of operator calls in all methods.
        findings: The problems. Equal problems are one finding, with all places where they occur.
        adapter: The GPU whose limits were checked. None: limits were not checked.
    """

    methods: tuple[str, ...]
    operators: int
    findings: tuple[Finding, ...]
    adapter: str | None = None

    @property
    def ok(self) -> bool:
        """Whether Pteron can run the program."""
        return not self.findings

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        if self.ok:
            place = f" on {self.adapter}" if self.adapter else ""
            return f"All {self.operators} operators of {', '.join(self.methods)} can run{place}."
        return "\n".join(f"{finding.method}: {finding}" for finding in self.findings)

    def _repr_html_(self) -> str:
        if self.ok:
            return html.section(str(self))
        rows = ((finding.method, finding) for finding in self.findings)
        return html.section(
            f"{len(self.findings)} problems: this program cannot run", html.table(("method", "problem"), rows)
        )


def check(
    source: Any,
    *,
    data_path: str | Path | Iterable[str | Path] | None = None,
    device: str | int | Adapter | Device | None = None,
    max_nodes: int = MAX_NODES,
    shapes: GivenShapes | None = None,
) -> CheckReport:
    """Find everything that prevents a program from running, without running it.

    Args:
        source: A `.pte` file: a path, bytes, or an open binary file.
        data_path: The `.ptd` file or files with its weights.
        device: The GPU whose limits and kernels count: an adapter's index or part of its name, or an open
            device. Default: none is needed, and the limits of a GPU are not checked.
        max_nodes: The maximum number of nodes in all methods together. See `load`.
        shapes: Smaller largest shapes than the file's. See `load`.

    Returns:
        A report with all problems of all methods. `bool(report)` is whether the program can run.

    Raises:
        FormatError: The file is damaged, or is not a `.pte` file.
        DeviceError: No adapter matches `device`.

    Example:
        ```python
        report = pteron.check("model.pte")
        report.ok, report.findings
        ```
    """
    paths = [data_path] if isinstance(data_path, (str, Path)) else list(data_path or ())
    dry = DryDevice() if device is None else _like(device)
    with ProgramFile.open(source, paths) as file:
        problems = _problems(file, dry, max_nodes, shapes)
        operators = sum(count_operators(file, name) for name in file.method_names)
        adapter = None if device is None else dry.name
        return CheckReport(file.method_names, operators, tuple(findings(problems)), adapter)


class DryDevice(RecordingDevice):
    """Takes everything that a load uploads, and keeps none of it."""

    def write(self, buffer: Any, offset: int, data: Any) -> None:
        pass


def _like(device: str | int | Adapter | Device) -> DryDevice:
    """A device with the kernels and the limits of another."""
    if not isinstance(device, (str, int, Adapter)):
        return DryDevice(device.route_features, device.limits, device.name)
    opened = open_device(device)
    try:
        return _like(opened)
    finally:
        opened.close()


def _problems(
    file: ProgramFile, device: DryDevice, max_nodes: int, shapes: GivenShapes | None
) -> Mapping[str, Sequence[Problem]]:
    try:
        program = load_file(file, device, max_nodes=max_nodes, shapes=shapes)
    except CannotRun as error:
        return error.problems
    return {name: _problems_of_load(program, name) for name in file.method_names}


def _problems_of_load(program: Program, method: str) -> list[Problem]:
    """What prevents the upload of a method: a constant that the GPU cannot hold, or too large a buffer."""
    try:
        program.method(method)
    except FormatError:
        raise
    except PteronError as error:
        what = "memory" if isinstance(error, OutOfMemory) else "a constant"
        return [Problem(what, "at load", str(error))]
    return []
