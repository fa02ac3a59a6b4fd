"""`pteron doctor --thorough`: run all kernels on an adapter, and remember which are wrong."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

from rich.text import Text

from pteron.cli.progress import steps
from pteron.cli.terminal import console, grid, heading

if TYPE_CHECKING:
    from pteron.engine.devices.opening import Adapter
    from pteron.tools.verify.selftest import SelfTestReport
    from pteron.tools.verify.soak import SoakReport

MOST_FINDINGS = 10  # rows of the table


def examine_adapter(adapter: Adapter) -> SelfTestReport:
    from pteron.engine.devices.opening import open_device
    from pteron.engine.measured import kernel_blocklist as examined
    from pteron.tools.verify.selftest import run_selftest

    device = open_device(adapter)
    try:
        with steps(f"examining {adapter.name}") as report:
            found = run_selftest(device, progress=report)
    finally:
        device.close()
    examined.write(adapter, examined.Examined(f"{date.today()}", found.results, found.wrong))
    return found


def soak_adapter(adapter: Adapter, minutes: float) -> SoakReport:
    from pteron.engine.devices.opening import open_device
    from pteron.tools.verify.soak import soak

    device = open_device(adapter)
    try:
        with steps(f"soaking {adapter.name}") as report:
            return soak(device, minutes, progress=report)
    finally:
        device.close()


def show_soak(found: SoakReport) -> None:
    out = console()
    for finding in found.findings[:MOST_FINDINGS]:
        out.print(Text(f"  {finding}", style="red"), soft_wrap=True)
    out.print(Text(str(found), style="green" if found.ok else "red"), soft_wrap=True)


def show_examination(found: SelfTestReport) -> None:
    """One line, and the worst of what was found."""
    out = console()
    if found.findings:
        out.print()
        out.print(heading("Wrong results", "later loads avoid these kernels where others fit"))
        firsts = {finding.route: finding for finding in reversed(found.findings)}
        rows = [
            (finding.route, finding.op, f"live size {finding.size}", finding.what)
            for finding in list(firsts.values())[:MOST_FINDINGS]
        ]
        out.print(grid(rows, header=("kernel", "operator", "", "first wrong result")))
        out.print()
    out.print(Text(str(found), style="green" if found.ok else "red"), soft_wrap=True)
