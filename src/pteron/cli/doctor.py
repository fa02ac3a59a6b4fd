"""`pteron doctor`: check the GPU adapters of this machine, and give advice."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from pteron.cli import common
from pteron.cli.devices import describe_adapter
from pteron.cli.examine import examine_adapter, show_examination, show_soak, soak_adapter
from pteron.cli.terminal import console, grid, heading, nbytes, print_json

if TYPE_CHECKING:
    from pteron.engine.devices.opening import Adapter
    from pteron.engine.measured.kernel_blocklist import Examined
    from pteron.tools.verify.selftest import SelfTestReport
    from pteron.tools.verify.soak import SoakReport

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
    """An adapter, the result of a kernel on it, and what is known of all kernels."""

    adapter: Adapter
    error: str | None
    examined: Examined | None = None

    @property
    def is_well(self) -> bool:
        return self.error is None


def doctor(
    thorough: Annotated[
        bool,
        typer.Option(
            "--thorough",
            help="Compare the results of all kernels with numpy, at several shapes. This takes minutes. "
            "Later loads avoid the kernels that are wrong. Exit code 1: a kernel is wrong.",
        ),
    ] = False,
    forget: Annotated[
        bool, typer.Option("--forget", help="Forget what --thorough found, and use all kernels again.")
    ] = False,
    minutes: Annotated[
        float | None,
        typer.Option(
            "--soak",
            min=0,
            metavar="MINUTES",
            help="Run all kernels for this time, in random order at changing shapes: results must be right "
            "and the same each time, and memory must be freed. Exit code 1: something was wrong.",
        ),
    ] = None,
    device: common.DeviceName = None,
    as_json: common.AsJson = False,
) -> None:
    """Check that this machine can run programs, and give advice."""
    from pteron.engine.devices.opening import adapters, find_adapter, opengl_names, try_kernel
    from pteron.engine.measured import kernel_blocklist as examined
    from pteron.errors import DeviceError

    failure = None
    checkups: list[Checkup] = []
    ignored: list[str] = []
    examinations: list[SelfTestReport] = []
    soaks: list[SoakReport] = []
    try:
        chosen = adapters() if device is None else (find_adapter(device),)
        if forget:
            for adapter in chosen:
                examined.forget(adapter)
        errors = {adapter.index: try_kernel(adapter) for adapter in chosen}
        if thorough:
            examinations = [examine_adapter(a) for a in chosen if errors[a.index] is None]
        if minutes is not None:
            soaks = [soak_adapter(a, minutes) for a in chosen if errors[a.index] is None]
        checkups = [Checkup(a, errors[a.index], examined.read(a)) for a in chosen]
        ignored = opengl_names()
    except DeviceError as error:
        failure = str(error)
    is_well = any(checkup.is_well for checkup in checkups)
    tips = [failure] if failure else list(advice(checkups, ignored))
    if as_json:
        print_json(
            {
                "ok": is_well,
                "versions": versions(),
                "adapters": [_checkup_json(checkup) for checkup in checkups],
                "opengl": ignored,
                "advice": tips,
                "examinations": [found.as_json() for found in examinations],
                "soaks": [found.as_json() for found in soaks],
            }
        )
    else:
        _report(console(), checkups, ignored, tips, is_well)
        for found in examinations:
            show_examination(found)
        for lasted in soaks:
            show_soak(lasted)
    raise typer.Exit(0 if is_well and all(found.ok for found in examinations) and all(soaks) else 1)


def versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for package in ("pteron", "wgpu", "numpy"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def advice(checkups: Sequence[Checkup], opengl: Sequence[str] = ()) -> Iterator[str]:
    """Return advice, the most important first."""
    from pteron.engine.devices.opening import REMEDY

    for checkup in checkups:
        if not checkup.is_well:
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
        "works": checkup.is_well,
        "error": checkup.error,
        "examined": asdict(checkup.examined) if checkup.examined else None,
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
    yield "all kernels", _known(checkup.examined)


def _known(found: Examined | None) -> Text:
    if found is None:
        return Text("not examined: run pteron doctor --thorough", style="dim")
    if not found.wrong:
        return Text(f"right in all {found.results} results on {found.day}", style="green")
    wrong = "; ".join(f"{label} ({', '.join(names)})" for label, names in found.wrong.items())
    return Text(f"wrong, and avoided where others fit: {wrong}; found on {found.day}", style="red")
