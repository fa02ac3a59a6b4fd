"""Try many programs, count what became of them, and keep what nothing explains."""

from __future__ import annotations

import json
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pteron.engine.devices.opening import open_device
from tests.differential.explanations import explanation
from tests.differential.kernels import all_options
from tests.differential.record import Record
from tests.differential.references import References
from tests.differential.shrink import shrunk
from tests.differential.trial import Finding, Outcome, Trial

PROGRAMS_OF_A_DEVICE = 4000  # then another device is opened: compiled kernels stay in the memory of a device


@dataclass
class Summary:
    """What became of the programs so far."""

    programs: int = 0
    not_drawn: int = 0  # torch ended its process while the program was drawn
    calls: int = 0
    checks: int = 0
    seconds: float = 0.0
    reached: Counter[str] = field(default_factory=Counter)
    options: set[str] = field(default_factory=set)  # optional arguments that were given
    one_reference: Counter[str] = field(default_factory=Counter)  # the references differ from each other
    refusals: Counter[str] = field(default_factory=Counter)  # of references
    explained: Counter[str] = field(default_factory=Counter)
    unexplained: dict[str, list[Any]] = field(default_factory=dict)  # by key: numbers of programs, a text

    def note(self, number: int, outcome: Outcome) -> list[Finding]:
        """Count an outcome. Returns the findings that are new and unexplained."""
        self.programs += 1
        self.calls += outcome.calls
        self.checks += outcome.checks
        self.reached.update(outcome.reached)
        self.options |= outcome.options
        self.one_reference.update(f"{kernel} agrees with {who} only" for kernel, who in outcome.only)
        self.refusals.update(f"{who} refuses {kernel}: {why}" for who, kernel, why in outcome.refusals)
        new = []
        for finding in outcome.findings:
            if why := explanation(finding):
                self.explained[why] += 1
                continue
            known = self.unexplained.setdefault(finding.key, [0, number, finding.detail])
            known[0] += 1
            if known[0] == 1:
                new.append(finding)
        return new

    def text(self, kernels: int) -> str:
        ran = f"{self.programs} programs, {self.calls} calls, {self.checks} compared steps"
        never = ", ".join(sorted(all_options() - self.options)[:40])
        lines = [
            f"{ran}, in {self.seconds:.0f} s",
            f"{len(self.reached)} of {kernels} kernels reached; {self.not_drawn} programs not drawn",
            f"{len(self.options)} of {len(all_options())} optional arguments given; never: {never or 'none'}",
            _listed("agree with one reference", self.one_reference),
            _listed("steps that a reference refuses", self.refusals),
            _listed("explained", self.explained),
            f"unexplained: {len(self.unexplained)}",
            *(
                f"  {count} × {key} (program {at}: {text})"
                for key, (count, at, text) in self.unexplained.items()
            ),
        ]
        return "\n".join(lines)


def _listed(title: str, counts: Counter[str]) -> str:
    return "\n".join(
        [f"{title}: {counts.total()}", *(f"  {n} × {what}" for what, n in counts.most_common(25))]
    )


class Search:
    """Tries programs by their numbers. Failures are shrunk and written into a folder."""

    def __init__(self, references: References, folder: Path | None = None) -> None:
        self._references, self._folder = references, folder
        self._device: Any = None
        self.summary = Summary()

    def open(self) -> None:
        """Open a device. One that is open is closed."""
        self.close()
        self._device = open_device()

    def close(self) -> None:
        if self._device is not None:
            self._device.close()
            self._device = None

    def run(self, numbers: range) -> Summary:
        began = time.monotonic()
        for count, number in enumerate(numbers):
            if count % PROGRAMS_OF_A_DEVICE == 0:
                self.open()
            self._try(number)
            if self._folder and count % 100 == 99:
                self.summary.seconds = time.monotonic() - began
                (self._folder / "summary.txt").write_text(f"up to {number}: {self._text()}\n")
        self.summary.seconds = time.monotonic() - began
        return self.summary

    def run_exported(self, numbers: range) -> Summary:
        """Try programs that go through torch.export and each partitioner."""
        began = time.monotonic()
        self.open()
        for number in numbers:
            made = self._references.export(number)
            if isinstance(made, str):
                self.summary.not_drawn += 1
                self.summary.refusals[made] += 1
            else:
                self.summary.note(number, Trial(self._device, self._references).run_exported(made))
            self.summary.seconds = time.monotonic() - began
            if self._folder:
                (self._folder / "exported.txt").write_text(f"up to {number}: {self._text()}\n")
        return self.summary

    def _text(self) -> str:
        from tests.differential.kernels import all_kernels

        return self.summary.text(len(all_kernels()))

    def _try(self, number: int) -> None:
        drawn = self._references.draw(number)
        if drawn is None:
            self.summary.not_drawn += 1
            return
        record, bounds = drawn
        if record.steps:
            for finding in self.summary.note(number, self.outcome(record, bounds)):
                self._keep(number, record, finding)

    def outcome(self, record: Record, bounds: Any = None) -> Outcome:
        """Try a record. An error that is not Pteron's own is a finding."""
        bounds = bounds or self._references.bounds(record)
        if bounds is None:
            return Outcome()
        try:
            return Trial(self._device, self._references).run(record, bounds)
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{Path(where.filename).name}:{where.name}"
            kernels = " ".join(dict.fromkeys(step.kernel for step in record.steps))
            return Outcome([Finding("crash", kernels, f"{type(error).__name__} in {place}: {error}")])

    def _keep(self, number: int, record: Record, finding: Finding) -> None:
        if self._folder is None:
            return
        small = shrunk(record, lambda smaller: self._fails_alike(smaller, finding), self._references)
        small.note = f"program {number}: {finding.kind} {finding.kernel}: {finding.detail}"
        kernel = finding.kernel.split(" ")[-1].partition("::")[2]
        path = self._folder / f"{finding.kind}-{kernel}-{number}.json"
        path.write_text(json.dumps(json.loads(small.to_json()), indent=1) + "\n", "utf-8")

    def _fails_alike(self, record: Record, finding: Finding) -> bool:
        found = self.outcome(record).findings
        if finding.kind in ("differs", "accepts"):
            return any((other.kind, other.kernel) == (finding.kind, finding.kernel) for other in found)
        if finding.kind == "crash":
            return any(other.kind == "crash" and other.detail == finding.detail for other in found)
        return any(other.kind == finding.kind and _reason(other) == _reason(finding) for other in found)


def _reason(finding: Finding) -> str:
    return finding.key.rpartition("): ")[2][:60] if finding.kind == "refuses" else ""
