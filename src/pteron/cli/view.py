"""`pteron view`: a local page that shows one or two programs."""

from __future__ import annotations

import webbrowser
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from pteron._util.extras import needs
from pteron.cli import common
from pteron.cli.arguments import parse_bounds
from pteron.cli.progress import progress_console

MOST_FILES = 2


def view(
    models: Annotated[list[Path], typer.Argument(help="A .pte file, or two to compare.")],
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="The port. 0: any free one.")] = 8090,
    open_browser: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in the browser.")
    ] = True,
    bounds: common.Bounds = None,
    data: common.DataPaths = None,
    device: common.DeviceName = None,
) -> None:
    """Show a .pte file as a page: graph, live shapes, kernels, memory, times, values."""
    if len(models) > MOST_FILES:
        raise typer.BadParameter(f"{len(models)} files are given: the page shows one, or compares two")
    with needs("view", "to show the page"):
        from pteron.tools.viewer.view_server import serve_page
    from pteron.tools.viewer.viewer import Viewer

    def ready(address: str) -> None:
        names = " and ".join(model.name for model in models)
        progress_console().print(Text(f"{names}: {address}  (Ctrl+C ends)"))
        if open_browser:
            webbrowser.open(address)

    with Viewer(models, data or [], device, parse_bounds(bounds)) as viewer, suppress(KeyboardInterrupt):
        serve_page(viewer, port, ready)
