"""`pteron doctor --thorough`: run all kernels on an adapter, and remember which are wrong."""

from __future__ import annotations

from datetime import date
from functools import partial
from typing import TYPE_CHECKING

from rich.text import Text

from pteron.cli.progress import steps
from pteron.cli.terminal import console, grid, heading

if TYPE_CHECKING:
    from pteron.devices import Adapter
    from pteron.trust import Examination

MOST_FINDINGS = 10  # rows of the table


def examine_adapter(adapter: Adapter) -> Examination:
    from pteron.devices import open_device
    from pteron.measure import examined
    from pteron.trust import examine

    device = open_device(adapter)
    try:
        with steps(f"examining {adapter.name}") as report:
            found = examine(device, progress=partial(report, f"examining the kernels on {adapter.name}"))
    finally:
        device.close()
    examined.write(adapter, examined.Examined(f"{date.today()}", found.results, found.wrong))
    return found


def show_examination(found: Examination) -> None:
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
