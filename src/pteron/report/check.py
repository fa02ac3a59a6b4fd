"""`pteron.check`: can a program run? Lists all problems before anything runs.

    report = pteron.check("model.pte")
    report.runs, report.findings

The answer needs only the file, no GPU.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pteron.ops  # noqa: F401  registers the operators
from pteron import html
from pteron.ir.problems import CannotRun, Finding, Problem, findings
from pteron.ir.values import Graph
from pteron.lower.budget import MAX_NODES, Budget
from pteron.lower.instructions import try_lower
from pteron.plan.sweep import plan
from pteron.pte.file import ProgramFile

__all__ = ["CheckReport", "Finding", "check", "problems_of"]


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The problems of a program.

    Attributes:
        methods: The names of all methods.
        operators: The number of operator calls in all methods.
        findings: The problems. Equal problems are one finding, with all places where they occur.
    """

    methods: tuple[str, ...]
    operators: int
    findings: tuple[Finding, ...]

    @property
    def runs(self) -> bool:
        """Whether Pteron can run the program."""
        return not self.findings

    def __str__(self) -> str:
        if self.runs:
            return f"All {self.operators} operators of {', '.join(self.methods)} can run."
        return "\n".join(f"{finding.method}: {finding}" for finding in self.findings)

    def _repr_html_(self) -> str:
        if self.runs:
            return html.section(str(self))
        rows = ((finding.method, finding) for finding in self.findings)
        return html.section(
            f"{len(self.findings)} problems: this program cannot run", html.table(("method", "problem"), rows)
        )


def check(
    source: Any,
    *,
    data_path: str | Path | Iterable[str | Path] | None = None,
    max_nodes: int = MAX_NODES,
) -> CheckReport:
    """Find everything that prevents a program from running. It needs no GPU.

    Args:
        source: A `.pte` file: a path, bytes, or an open binary file.
        data_path: The `.ptd` file or files with its weights.
        max_nodes: The maximum number of nodes in all methods together. See `load`.

    Returns:
        A report with all problems of all methods.

    Raises:
        FormatError: The file is damaged, or is not a `.pte` file.

    Example:
        ```python
        report = pteron.check("model.pte")
        report.runs, report.findings
        ```
    """
    paths = [data_path] if isinstance(data_path, (str, Path)) else list(data_path or ())
    with ProgramFile.open(source, paths) as file:
        problems: dict[str, list[Problem]] = {}
        operators = 0
        budget = Budget(max_nodes)
        for method in file.method_names:
            graph, problems[method] = problems_of(file, method, budget)
            operators += len(graph.nodes)
        return CheckReport(file.method_names, operators, tuple(findings(problems)))


def problems_of(file: ProgramFile, method: str, budget: Budget) -> tuple[Graph, list[Problem]]:
    """The graph of a method, and its problems: missing operators, and arguments that a rule refuses."""
    graph, problems = try_lower(file, method, budget)
    if not problems:
        try:
            plan(graph)
        except CannotRun as error:
            problems = list(error.problems[graph.name])
    return graph, problems
