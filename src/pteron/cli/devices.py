"""`pteron devices`: the GPU adapters, one per line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pteron.cli import common
from pteron.cli.terminal import console, grid, print_json

if TYPE_CHECKING:
    from pteron.engine.devices.opening import Adapter


def devices(
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print nothing. The exit code is 0 if there is an adapter.")
    ] = False,
    as_json: common.AsJson = False,
) -> None:
    """List the GPU adapters, the best first."""
    from pteron.engine.devices.opening import REMEDY, adapters
    from pteron.errors import DeviceError

    try:
        found = adapters()
    except DeviceError:
        if quiet:
            raise typer.Exit(1) from None
        raise
    if as_json and not quiet:
        print_json([describe_adapter(adapter) for adapter in found])
    elif not quiet:
        if not found:
            raise DeviceError(f"no GPU adapter was found: {REMEDY}")
        rows = [(a.index, a.name, a.kind, a.backend, a.driver) for a in found]
        console().print(grid(rows, indent=0))
    raise typer.Exit(0 if found else 1)


def describe_adapter(adapter: Adapter) -> dict[str, Any]:
    return {
        "index": adapter.index,
        "name": adapter.name,
        "kind": adapter.kind,
        "backend": adapter.backend,
        "driver": adapter.driver,
    }
