"""A report on an export, read from the exported file."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

from pteron.pte.file import ProgramFile
from pteron.report import check as checking
from pteron.report.inspect import OperatorCount, inspect_method


@dataclass(frozen=True, slots=True)
class Outside:
    """An operator outside the delegate."""

    name: str
    count: int
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        why = f"  ({'; '.join(self.reasons)})" if self.reasons else ""
        return f"{self.count}× {self.name}{why}"


@dataclass(frozen=True, slots=True)
class ExportReport:
    """What an exported file contains. `print(report)` shows it.

    Attributes:
        nbytes: The size of the file.
        delegates: Delegate calls. More than one means that the operators between them are outside.
        delegated: The operators in the delegate.
        outside: The operators outside the delegate, and why.
        unquantized: Layers that are not quantized, and why.
        check: Whether Pteron can run the program.
        partitioner_error: Why nothing is delegated.
    """

    nbytes: int
    delegates: int
    delegated: tuple[OperatorCount, ...]
    outside: tuple[Outside, ...]
    unquantized: tuple[str, ...]
    check: checking.CheckReport
    partitioner_error: str | None = None

    @property
    def runs(self) -> bool:
        """Whether Pteron can run the program. Operators outside the delegate run on the GPU too."""
        return self.check.runs

    @property
    def count_outside(self) -> int:
        return sum(operator.count for operator in self.outside)

    def __str__(self) -> str:
        inside = sum(operator.count for operator in self.delegated)
        lines = [
            f"{self.nbytes:,} bytes",
            f"Operator calls: {inside} delegated, {self.count_outside} not",
        ]
        if self.partitioner_error is not None:
            lines.append(f"Nothing is delegated: ExecuTorch's partitioner failed ({self.partitioner_error})")
        if self.delegates > 1:
            lines.append(f"Split into {self.delegates} delegates")
        if self.outside:
            lines.append("Outside the delegate:")
            lines += [f"  {operator}" for operator in self.outside]
        if self.unquantized:
            lines.append("Not quantized:")
            lines += [f"  {layer}" for layer in self.unquantized]
        lines.append(str(self.check) if self.runs else f"Pteron cannot run it:\n{self.check}")
        return "\n".join(lines)


def describe(
    buffer: bytes,
    reasons: Mapping[str, Set[str]],
    unquantized: tuple[str, ...],
    partitioner_error: str | None = None,
) -> ExportReport:
    with ProgramFile.open(buffer) as file:
        info = inspect_method(file, "forward")
    outside = tuple(
        Outside(o.name, o.count, tuple(sorted(reasons.get(o.name.split(".")[0], ()))))
        for o in info.operators
        if o.place == "outside"
    )
    delegated = tuple(o for o in info.operators if o.place == "delegate")
    calls = sum(delegate.calls for delegate in info.delegates)
    checked = checking.check(buffer)
    return ExportReport(len(buffer), calls, delegated, outside, unquantized, checked, partitioner_error)
