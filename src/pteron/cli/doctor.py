"""`pteron doctor`: check the GPU adapters of this machine, and give advice."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.text import Text

from pteron.cli import common
from pteron.cli.devices import describe_adapter
from pteron.cli.terminal import console, grid, heading, nbytes, print_json

if TYPE_CHECKING:
    from pteron.devices import Adapter

# Older software Vulkan drivers of Mesa are several times slower.
GOOD_MESA = (25,)

_SIZES = {
    "max-buffer-size": "largest buffer",
    "max-storage-buffer-binding-size": "largest tensor",
    "max-compute-workgroup-storage-size": "workgroup memory",
}
_COUNTS = {
    "max-compute-invocations-per-workgroup": "invocations per workgroup",
    "max-storage-buffers-per-shader-stage": "tensors per kernel",
}
_FEATURES = ("shader-f16", "subgroup", "timestamp-query")


@dataclass(frozen=True, slots=True)
class Checkup:
    """An adapter, and the result of a kernel on it."""

    adapter: Adapter
    error: str | None


def doctor(as_json: common.AsJson = False) -> None:
    """Check that this machine can run programs, and give advice."""
    from pteron.devices import adapters, opengl_names, try_kernel
    from pteron.errors import DeviceError

    failure = None
    checkups: list[Checkup] = []
    ignored: list[str] = []
    try:
        checkups = [Checkup(adapter, try_kernel(adapter)) for adapter in adapters()]
        ignored = opengl_names()
    except DeviceError as error:
        failure = str(error)
    is_well = any(checkup.error is None for checkup in checkups)
    tips = [failure] if failure else list(advice(checkups, ignored))
    if as_json:
        print_json(
            {
                "ok": is_well,
                "versions": versions(),
                "adapters": [_checkup_json(checkup) for checkup in checkups],
                "opengl": ignored,
                "advice": tips,
            }
        )
    else:
        _report(console(), checkups, ignored, tips, is_well)
    raise typer.Exit(0 if is_well else 1)


def versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for package in ("pteron", "wgpu", "numpy"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def advice(checkups: Sequence[Checkup], opengl: Sequence[str] = ()) -> Iterator[str]:
    """What the user should do, the most important first."""
    from pteron.devices import REMEDY

    for checkup in checkups:
        if checkup.error is not None:
            yield f"{checkup.adapter.name} does not work: update its driver ({checkup.adapter.driver})"
    if not checkups and opengl:
        yield f"{', '.join(opengl)} has only an OpenGL driver, which is not enough for compute: {REMEDY}"
    elif not checkups:
        yield f"no GPU adapter was found: {REMEDY}"
    if all(checkup.adapter.is_software for checkup in checkups):
        yield from _hidden_hardware()
    for checkup in checkups:
        mesa = mesa_version(checkup.adapter.driver)
        if checkup.adapter.is_software and mesa is not None and mesa < GOOD_MESA:
            version = ".".join(map(str, mesa))
            yield (
                f"Mesa {version}'s software driver is several times slower than Mesa 25's: install "
                "mesa-vulkan-drivers from bookworm-backports "
                "(Debian 12: apt-get install -t bookworm-backports mesa-vulkan-drivers)"
            )


def mesa_version(driver: str) -> tuple[int, ...] | None:
    match = re.search(r"Mesa (\d+)\.(\d+)\.(\d+)", driver)
    return tuple(map(int, match.groups())) if match else None


def _hidden_hardware() -> Iterator[str]:
    """Signs of a GPU that no driver reports."""
    if Path("/proc/driver/nvidia/version").exists():
        yield (
            "there is an NVIDIA GPU, but its Vulkan driver is not visible: in a container, set "
            "NVIDIA_DRIVER_CAPABILITIES=all"
        )
    locked = [node for node in Path("/dev/dri").glob("renderD*") if not os.access(node, os.R_OK | os.W_OK)]
    if locked:
        yield f"there is a GPU, but no permission to open {locked[0]}: add the user to the group that owns it"


def _checkup_json(checkup: Checkup) -> dict[str, Any]:
    adapter = checkup.adapter
    limits = {name: adapter.limits[name] for name in (*_SIZES, *_COUNTS) if name in adapter.limits}
    return {
        **describe_adapter(adapter),
        "works": checkup.error is None,
        "error": checkup.error,
        "limits": limits,
        "features": [feature for feature in _FEATURES if feature in adapter.features],
    }


def _report(
    out: Console, checkups: Sequence[Checkup], opengl: Sequence[str], tips: Sequence[str], is_well: bool
) -> None:
    out.print(heading("Versions"))
    out.print(grid(list(versions().items())))
    for checkup in checkups:
        adapter = checkup.adapter
        out.print()
        out.print(heading(f"{adapter.index}: {adapter.name}", f"{adapter.kind}, {adapter.backend}"))
        out.print(grid(list(_adapter_rows(checkup))))
    if opengl:
        out.print()
        out.print(Text(f"Not usable, OpenGL lacks compute features: {', '.join(opengl)}", style="dim"))
    if tips:
        out.print()
        out.print(heading("Advice"))
        for tip in tips:
            out.print(grid([("•", tip)]))
    out.print()
    verdict = (
        ("This machine can run programs.", "green")
        if is_well
        else ("This machine cannot run programs yet.", "red")
    )
    out.print(Text(*verdict))


def _adapter_rows(checkup: Checkup) -> Iterator[tuple[object, object]]:
    adapter, limits = checkup.adapter, checkup.adapter.limits
    yield "driver", adapter.driver
    yield from ((title, nbytes(limits[name])) for name, title in _SIZES.items() if name in limits)
    yield from ((title, limits[name]) for name, title in _COUNTS.items() if name in limits)
    yield "features", ", ".join(f for f in _FEATURES if f in adapter.features) or "none"
    worked = Text("works", style="green") if checkup.error is None else Text(checkup.error, style="red")
    yield "test kernel", worked
