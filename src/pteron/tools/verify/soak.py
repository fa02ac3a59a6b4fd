"""All kernels for a long time: in random order, at changing shapes, with a look at memory after each.

    report = soak(device, minutes=60)     # `pteron doctor --soak 60`

Every case of the catalogue runs again and again. A result must be right, and have the same bits as the first
time. What a case allocates on the GPU must be free after it. The process may not grow after the first round.
"""

from __future__ import annotations

import gc
import hashlib
import os
import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pteron._util.progress import Progress
from pteron.engine.devices.device import Device
from pteron.tools.verify.catalogue import Case
from pteron.tools.verify.catalogue import cases as all_cases
from pteron.tools.verify.selftest import WrongResult, run_case

MOST_GROWTH = 256  # MiB of the process after all cases have run once: drivers and allocators keep some


@dataclass(slots=True)
class SoakReport:
    """What happened. It is true if nothing was wrong.

    Attributes:
        adapter: The GPU.
        minutes: How long it took.
        rounds: How often all cases have run.
        results: How many results were compared.
        findings: Wrong results, changed bits, and memory that was not freed.
        grown_mib: How much the process grew after the first round. None: there was only one.
    """

    adapter: str
    minutes: float = 0.0
    rounds: int = 0
    results: int = 0
    findings: list[str] = field(default_factory=list)
    grown_mib: float | None = None

    @property
    def ok(self) -> bool:
        """Whether nothing was wrong."""
        return not self.findings

    def __bool__(self) -> bool:
        return self.ok

    def as_json(self) -> dict[str, Any]:
        """The report as `pteron doctor --soak --json` prints it."""
        told = asdict(self)
        told["device"] = told.pop("adapter")
        return {"ok": self.ok, **told}

    def __str__(self) -> str:
        memory = "" if self.grown_mib is None else f", the process grew by {self.grown_mib:.0f} MiB"
        done = f"{self.results} results in {self.minutes:.1f} minutes, {self.rounds} full rounds{memory}"
        if self.ok:
            return f"{self.adapter}: {done}; all are right, with the same bits each time."
        return f"{self.adapter}: {done}; {len(self.findings)} findings. First: {self.findings[0]}"


def soak(
    device: Device,
    minutes: float,
    cases: Iterable[Case] | None = None,
    progress: Progress | None = None,
    seed: int = 0,
) -> SoakReport:
    """Run all kernels until the time is over.

    cases: default: all. progress: is told how many seconds are over, and how many there are.
    """
    tried = list(all_cases() if cases is None else cases)
    report, bits, shuffle = SoakReport(device.name), Bits(), random.Random(seed).shuffle
    begin, first_round = time.monotonic(), 0.0
    while report.ok or report.rounds == 0:
        shuffle(tried)
        for case in tried:
            passed = time.monotonic() - begin
            if passed >= 60 * minutes:
                report.minutes = passed / 60
                return report
            if progress is not None:
                progress(f"all kernels on {device.name}, in seconds", round(passed), round(60 * minutes))
            _run(device, case, bits, shuffle, report)
        report.rounds += 1
        first_round = first_round or resident_mib()
        report.grown_mib = resident_mib() - first_round if report.rounds > 1 else None
        if (report.grown_mib or 0) > MOST_GROWTH:
            report.findings.append(f"the process grew by {report.grown_mib:.0f} MiB after the first round")
    report.minutes = (time.monotonic() - begin) / 60
    return report


def _run(
    device: Device, case: Case, bits: Bits, shuffle: Callable[[list[int]], None], report: SoakReport
) -> None:
    """Run a case with its sizes in random order, and look at the memory of the device after it."""
    before = device.allocated_nbytes
    sizes = list(case.sizes)
    shuffle(sizes)
    for _, wrong in run_case(device, case, sizes, bits.changed(case)):
        report.results += 1
        report.findings += [str(wrong)] if isinstance(wrong, WrongResult) else []
    gc.collect()
    left = device.allocated_nbytes - before
    if left > 0:
        report.findings.append(f"{case.op}: {left:,} bytes on the GPU were not freed")


class Bits:
    """Digests of the first result of every route, at every size."""

    def __init__(self) -> None:
        self._known: dict[Any, bytes] = {}

    def changed(self, case: Case) -> Callable[[str, int, Sequence[Any]], str | None]:
        """A check of a route's results at a size: what is wrong if they are not those of the first time."""

        def check(route: str, size: int, made: Sequence[Any]) -> str | None:
            digest = hashlib.sha256(
                b"".join(np.ascontiguousarray(array).tobytes() for array in made)
            ).digest()
            key = id(case.entry), case.dtype, route, size
            return (
                None if self._known.setdefault(key, digest) == digest else "other bits than at the first time"
            )

        return check


def resident_mib() -> float:
    """The memory of this process, or 0 where it is not known."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20 if statm.exists() else 0.0
