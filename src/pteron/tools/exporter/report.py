"""A report on an export, read from the exported file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, replace

from pteron.pte.file import ProgramFile
from pteron.tools.inspect import check as checking
from pteron.tools.inspect.inspect import OperatorCount, inspect_method


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
        notes: What else differs from what was asked for, such as a maximum that was not given.
    """

    nbytes: int
    delegates: int
    delegated: tuple[OperatorCount, ...]
    outside: tuple[Outside, ...]
    unquantized: tuple[str, ...]
    check: checking.CheckReport
    partitioner_error: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether Pteron can run the program. Operators outside the delegate run on the GPU too."""
        return self.check.ok

    @property
    def count_outside(self) -> int:
        return sum(operator.count for operator in self.outside)

    def __str__(self) -> str:
        inside = sum(operator.count for operator in self.delegated)
        lines = [f"{self.nbytes:,} bytes", f"Operator calls: {inside} delegated, {self.count_outside} not"]
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
        lines += self.notes
        lines.append(str(self.check) if self.ok else f"Pteron cannot run it:\n{self.check}")
        return "\n".join(lines)


def describe(
    buffer: bytes,
    methods: Iterable[str],
    reasons: Mapping[str, Set[str]],
    unquantized: tuple[str, ...],
    partitioner_error: str | None = None,
    notes: tuple[str, ...] = (),
) -> ExportReport:
    with ProgramFile.open(buffer) as file:
        infos = [inspect_method(file, name) for name in methods]
    operators = _added_up(operator for info in infos for operator in info.operators)
    outside = tuple(
        Outside(o.name, o.count, tuple(sorted(reasons.get(o.name.split(".")[0], ()))))
        for o in operators
        if o.place == "outside"
    )
    delegated = tuple(o for o in operators if o.place == "delegate")
    calls = sum(delegate.calls for info in infos for delegate in info.delegates)
    checked = checking.check(buffer)
    return ExportReport(
        len(buffer), calls, delegated, outside, unquantized, checked, partitioner_error, notes
    )


def _added_up(operators: Iterable[OperatorCount]) -> list[OperatorCount]:
    """One count for each operator of all methods."""
    found: dict[tuple[str, str], OperatorCount] = {}
    for operator in operators:
        key = operator.name, operator.place
        known = found.get(key)
        found[key] = replace(operator, count=operator.count + known.count) if known else operator
    return list(found.values())
