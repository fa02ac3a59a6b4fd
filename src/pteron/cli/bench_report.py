"""`pteron bench --report`: write what every kernel takes on a device, and show the fastest routes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.text import Text

from pteron.cli.output_places import prepare_file
from pteron.cli.progress import steps
from pteron.cli.terminal import console, grid, heading, plural, print_json


def write_report(path: Path, seconds: float, wanted: str | None, as_json: bool) -> None:
    from pteron.engine.devices.opening import open_device
    from pteron.tools.tune.kernel_report import make_report

    prepare_file(path)
    device = open_device(wanted)
    try:
        with steps("measuring the device") as progress:
            report = make_report(device, seconds, progress=progress)
    finally:
        device.close()
    path.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", "utf-8")
    if as_json:
        print_json(report)
    else:
        show(report, path)


def show(report: dict[str, Any], path: Path) -> None:
    out, device, ceilings = console(), report["device"], report["ceilings"]
    out.print(heading(device["name"], f"{device['backend']}, {device['driver']}"))
    bandwidth, arithmetic = ceilings["bytes_per_second"] / 1e9, ceilings["flops_per_second"] / 1e9
    empty = 1e6 * ceilings["dispatch_seconds"]
    out.print(f"  {bandwidth:,.1f} GB/s, {arithmetic:,.1f} GFLOP/s, {empty:,.1f} µs for an empty kernel")
    out.print(f"  measured by {report['clock']}\n")
    header = ("kernels", "the fastest route", "ms", "of the ceiling", "bound")
    out.print(grid(list(_rows(report)), header=header))
    count = sum(len(case["routes"]) for case in report["cases"])
    out.print(Text(f"\n  {plural(count, 'route')} in {report['seconds_spent']:.0f} s; saved {path}"))
    for name, reason in report["failed"].items():
        out.print(Text(f"  failed: {name}: {reason}"))
    if report["left_out"]:
        out.print(Text(f"  no time for {plural(len(report['left_out']), 'case')}: --seconds gives more"))


def _rows(report: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    for case in sorted(report["cases"], key=lambda case: case["family"]):
        best = min(case["routes"], key=lambda route: route["seconds"])
        yield (
            f"{case['family']}, {case['name']}",
            best["route"],
            f"{1000 * best['seconds']:.3f}",
            f"{best['percent_of_ceiling']:.0f} %",
            case["bound"],
        )
