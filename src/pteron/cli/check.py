"""`pteron check`: can a program run? Lists all problems. Needs a GPU only to check its limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from pteron.cli import common
from pteron.cli.arguments import parse_bounds
from pteron.cli.terminal import console, grid, heading, plural, print_json

if TYPE_CHECKING:
    from pteron.tools.inspect.check import CheckReport, Finding


def check(
    model: common.Model,
    bounds: common.Bounds = None,
    data: common.DataPaths = None,
    device: Annotated[
        str | None,
        typer.Option(
            "--device", "-d", help="Check the limits of this GPU, too: its index, or a part of its name."
        ),
    ] = None,
    as_json: common.AsJson = False,
) -> None:
    """Check whether a .pte file can run, and list everything that prevents it."""
    from pteron.tools.inspect.check import check as check_program

    report = check_program(model, data_path=data, device=device, shapes=parse_bounds(bounds))
    if as_json:
        print_json({"file": str(model), **report_json(report)})
    elif report:
        place = f" on {report.adapter}" if report.adapter else ""
        console().print(
            f"{model.name} can run{place}: {plural(report.operators, 'operator')}, none of them missing."
        )
    else:
        show(model.name, report)
    raise typer.Exit(0 if report else 1)


def report_json(report: CheckReport) -> dict[str, Any]:
    return {
        "ok": report.ok,
        "adapter": report.adapter,
        "methods": list(report.methods),
        "operators": report.operators,
        "findings": [
            {"method": f.method, "what": f.what, "why": f.why, "count": f.count, "places": list(f.places)}
            for f in report.findings
        ],
    }


def show(name: str, report: CheckReport) -> None:
    out = console()
    out.print(
        Text.assemble((name, "bold"), (f" cannot run: {plural(len(report.findings), 'problem')}", "bold red"))
    )
    for method in report.methods:
        found = [finding for finding in report.findings if finding.method == method]
        if found:
            out.print(Text())
            out.print(heading(method))
            out.print(grid([_row(finding) for finding in found]))


def _row(finding: Finding) -> tuple[Text, ...]:
    return (
        Text(f"{finding.count:>4}×"),
        Text(finding.what, style="red"),
        Text.assemble(finding.why, "\n", (finding.shown_places, "dim")),
    )
