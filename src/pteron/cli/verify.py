"""`pteron verify`: is every node right on this GPU?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from pteron.cli import common
from pteron.cli.arguments import parse_bounds
from pteron.cli.output_places import prepare_folder
from pteron.cli.progress import steps
from pteron.cli.terminal import console, grid, heading, plural, print_json

if TYPE_CHECKING:
    from pteron.tools.verify import NodeResult, VerifyReport


def verify(
    model: common.Model,
    inputs: common.Inputs = None,
    shapes: common.Shapes = None,
    live: common.LiveSize = None,
    seed: common.Seed = 0,
    method: Annotated[
        str | None,
        typer.Option(
            "--method", "-m", help="The method to verify. Default: all; forward if inputs are given."
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            metavar="executorch|torch|portable|software|ADAPTER",
            help="What computes each node again. Default: ExecuTorch's own kernels if they are installed, "
            "else torch, else portable: the kernels that every device can run. Or another adapter: software, "
            "or a part of its name.",
        ),
    ] = None,
    reference: Annotated[
        Path | None,
        typer.Option("--reference", help="Compare the whole program with an exported program (.pt2)."),
    ] = None,
    all_routes: Annotated[
        bool, typer.Option("--all-routes", help="Verify all kernels that fit, not only those in use.")
    ] = False,
    count: Annotated[
        int | None,
        typer.Option(
            "--repeat",
            min=2,
            help="Instead: make the same call N times, compare all results bit by bit, and name the first "
            "node that differs.",
        ),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option("--save-failure", metavar="FOLDER", help="Save each wrong node as a program."),
    ] = None,
    top: Annotated[int, typer.Option("--top", min=1, help="Maximum rows per table.")] = 5,
    bounds: common.Bounds = None,
    data: common.DataPaths = None,
    device: common.DeviceName = None,
    as_json: common.AsJson = False,
) -> None:
    """Compute every node of a .pte file again, by a reference, and compare. Exit code 1: a node is wrong.

    With --repeat: is every result the same each time? Exit code 1: one is not.
    """
    from pteron.api.loading import load
    from pteron.cli.inputs import live_shapes, make_inputs
    from pteron.tools.verify import repeat
    from pteron.tools.verify import verify as run

    prepare_folder(save)
    with (
        steps(f"loading {model.name}") as report,
        load(model, data_path=data, device=device, shapes=parse_bounds(bounds), methods=()) as program,
    ):
        given = None
        if inputs or shapes or live is not None:
            method = method or "forward"
            common.check_method(method, program.method_names)
            loaded = program.method(method)
            sizes = live_shapes(loaded, live, shapes or [])
            made = make_inputs(loaded, inputs or [], sizes, "random", seed)
            given = [item.value for item in made.values()]
        elif method is not None:
            common.check_method(method, program.method_names)
        if count is not None:
            repeated = repeat(program, given, count=count, method=method, seed=seed, progress=report)
            if as_json:
                print_json({"file": str(model), **repeated.as_json()})
            else:
                console().print(Text(str(repeated), style="green" if repeated.ok else "red"), soft_wrap=True)
            raise typer.Exit(0 if repeated.ok else 1)
        found = run(
            program,
            reference,
            given,
            method=method,
            against=against,
            all_routes=all_routes,
            save=save,
            seed=seed,
            progress=report,
        )
    if as_json:
        print_json({"file": str(model), **found.as_json()})
    else:
        show(model.name, found, top)
    raise typer.Exit(0 if found.ok else 1)


def show(name: str, found: VerifyReport, top: int) -> None:
    out = console()
    verified = [result for result in found.results if result.reference]
    wrong = f"{plural(len(found.bad), 'result')} wrong"
    verdict = ("every result is right", "bold green") if found.ok else (wrong, "bold red")
    out.print(Text.assemble((name, "bold"), f" on {found.adapter}: ", verdict))
    results, shapes = plural(len(verified), "result"), plural(len(found.shapes), "live shape")
    out.print(Text(f"  {results} verified at {shapes}"))
    for reference, count in found.references.items():
        out.print(Text(f"  {count} against {reference}"))
    for note in found.notes:
        out.print(Text(f"  {note}"))
    if found.first_bad is not None:
        out.print(Text())
        out.print(heading("the first wrong node"))
        out.print(Text(f"  {found.first_bad}", style="red"))
        if found.first_bad.saved:
            out.print(Text(f"  saved {found.first_bad.saved}"))
    out.print(Text())
    out.print(heading("the largest errors", "as a share of the allowed error"))
    out.print(grid([_row(result) for result in (found.bad or found.worst(top))[:top]]))
    if found.unverified:
        out.print(Text())
        out.print(heading("not verified"))
        reasons = {result.op: result.note for result in found.unverified}
        out.print(grid([(Text(f"  {op}"), Text(why)) for op, why in reasons.items()]))


def _row(result: NodeResult) -> tuple[Text, ...]:
    return (
        Text(f"  {result.share:.3g}", style="red" if result.is_bad else ""),
        Text(f"node {result.index}" if result.kernels else "whole method"),
        Text(result.op),
        Text(" + ".join(result.kernels)),
        Text(" ".join(str(list(shape)) for shape in result.reads), style="dim"),
    )
