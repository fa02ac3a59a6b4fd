"""`pteron tune`: time the routes of a program's nodes, and store the fastest."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from pteron.cli import common
from pteron.cli.arguments import parse_bounds
from pteron.cli.progress import steps
from pteron.cli.terminal import console, grid, heading, plural, print_json

if TYPE_CHECKING:
    from pteron.api.method import Method
    from pteron.api.profiling.trials import Measured


def tune(
    model: Annotated[Path, typer.Argument(help="A .pte file.")],
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            "-i",
            metavar="[NAME=]NUMBER",
            help="The value of an input, such as a position. Default: zeros.",
        ),
    ] = None,
    lives: Annotated[
        list[int] | None,
        typer.Option(
            "--live",
            "-l",
            min=1,
            help="The size of every dynamic dimension. Repeatable. Default: 1, the middle, the maximum.",
        ),
    ] = None,
    expect: Annotated[
        Path | None,
        typer.Option("--expect", help="Time at the shapes in a file that Method.record_shapes wrote."),
    ] = None,
    method: common.MethodName = "forward",
    repeat: common.Repeat = 5,
    bounds: common.Bounds = None,
    data: common.DataPaths = None,
    device: common.DeviceName = None,
    as_json: common.AsJson = False,
) -> None:
    """Find the fastest kernels for a .pte file on this device. Later loads use them."""
    from pteron.api.loading import load
    from pteron.api.profiling import trials
    from pteron.cli.inputs import make_inputs
    from pteron.engine.measured import tuning

    trial = trials.Trial()
    loading = partial(
        load, model, data_path=data, device=device, choice=trial, shapes=parse_bounds(bounds), methods=()
    )
    if expect is not None:
        loading = partial(loading, expect=expect)
    with steps(f"loading {model.name}") as report, loading() as program:
        common.check_method(method, program.method_names)
        adapter = trials.timed_adapter(program.device)
        loaded = program.method(method)
        calls = []
        for shapes in _shapes(loaded, lives):
            given = make_inputs(loaded, inputs or [], shapes, "zeros", 0)
            calls.append([item.value for item in given.values()])
        found = trials.measure(loaded, trial, calls, repeat, report)
        saved = tuning.write(adapter, trials.best_of(found))
    if as_json:
        print_json({"file": str(model), "device": adapter.name, "saved": str(saved), "choices": _json(found)})
    else:
        show(model.name, adapter.name, found, saved)


def _shapes(method: Method, lives: list[int] | None) -> list[list[str]]:
    """The `--shape` arguments of each call to time."""
    from pteron.api.profiling.trials import some_sizes
    from pteron.cli.inputs import live_shapes

    if lives is None and method.expected:
        return [
            [f"{name}={','.join(map(str, live))}" for name, live in call.items() if isinstance(live, tuple)]
            for call in method.expected
        ]
    return [live_shapes(method, live, []) for live in lives or some_sizes(method)]


def _json(found: list[Measured]) -> list[dict[str, Any]]:
    return [
        {
            "node": entry.key,
            "size": entry.size,
            "seconds": entry.medians,
            "default": entry.default,
            "best": entry.best,
        }
        for entry in found
    ]


def show(name: str, device: str, found: list[Measured], saved: Path) -> None:
    out = console()
    changed = sum(entry.best != entry.default for entry in found)
    out.print(heading(name, f"on {device}"))
    if not found:
        out.print(Text("  no operator has more than one kernel on this device"))
        return
    rows = []
    for entry in sorted(found, key=lambda e: e.key):
        op, *reads = entry.key.split(" ", 1)
        rows.append((op.removesuffix(".default"), " ".join(reads), entry.size, _candidates(entry)))
    out.print(
        grid(rows, header=("operator", "reads at most", "writes", "ms per route, the chosen one first"))
    )
    out.print(Text(f"\n  {plural(changed, 'choice')} of {len(found)} changed; saved {saved}"))


def _candidates(entry: Measured) -> Text:
    text = Text()
    medians = entry.medians
    for route in (entry.best, *(r for r in medians if r != entry.best)):
        style = ("green" if entry.best != entry.default else "") if route == entry.best else "dim"
        text.append(f"{route} {1000 * medians[route]:.3f}  ", style=style)
    return text
