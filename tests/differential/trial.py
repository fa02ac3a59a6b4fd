"""Run a record by Pteron, compare every step with both references, and tell what was found."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import torch

import pteron
from pteron.api.method import Method
from pteron.engine.devices.opening import Device
from pteron.errors import PteronError
from tests.differential.direct import Bounds, written
from tests.differential.fills import tensor_of
from tests.differential.kernels import ANY_CONTENTS, options
from tests.differential.record import Record
from tests.differential.references import EXECUTORCH, TORCH, Checked, References
from tests.support.memory import poison

METHODS = ("forward", "again")


@dataclass(frozen=True)
class Finding:
    """Something that needs an explanation. `kind`: differs, refuses, accepts, fused, crash."""

    kind: str
    kernel: str
    detail: str
    step: int = -1

    @property
    def key(self) -> str:
        """The same for findings that look alike."""
        text = re.sub(r"\[[^]]*\]|\([\d, ]*\)", "[..]", self.detail)
        text = re.sub(r"(?<![a-z\d])-?\d+(\.\d+)?(e[-+]?\d+)?|\bnan\b|-?\binf\b", "N", text)
        return f"{self.kind} {self.kernel}: {text}"


@dataclass
class Outcome:
    """What became of a program: its findings, and counts for the summary."""

    findings: list[Finding] = field(default_factory=list)
    calls: int = 0
    checks: int = 0
    only: list[tuple[str, str]] = field(
        default_factory=list
    )  # a kernel, and the one reference it agrees with
    refusals: list[tuple[str, str, str]] = field(default_factory=list)  # of references: who, kernel, reason
    reached: set[str] = field(default_factory=set)
    options: set[str] = field(default_factory=set)  # optional arguments that were given


class Trial:
    """Runs records on one device."""

    def __init__(self, device: Device, references: References) -> None:
        self._device, self._references = device, references

    def run(self, record: Record, bounds: Bounds, fused: bool = True) -> Outcome:
        outcome = Outcome(reached={step.kernel for step in record.steps}, options=_options(record))
        everything = [name for step in record.steps for name in step.outputs]
        buffers = [name for name, source in record.sources.items() if source.kind == "buffer"]
        outputs = [*everything, *buffers]
        data = written(dict.fromkeys(METHODS[: record.methods], (record, bounds, outputs)))
        runs = self._calls(data, record, outcome, ())
        before = {name: tensor_of(record.sources[name], 0) for name in buffers}
        checked_results = []
        for point, results in zip(record.calls, runs, strict=False):
            if results is None:
                checked_results.append(None)
                continue
            values = {name: tensor_of(source, point) for name, source in record.sources.items()}
            values |= before | dict(zip(everything, results, strict=False))
            before = dict(zip(buffers, results[len(everything) :], strict=True))
            for checked in self._references.check(record, values, before):
                self._judge(checked, outcome)
            checked_results.append([values[name] for name in record.results])
        if fused and len(record.steps) > 1 and checked_results and not outcome.findings:
            self._check_fused(record, bounds, checked_results, outcome)
        return outcome

    def _calls(self, data: bytes, record: Record, outcome: Outcome, fuse: Any) -> list[Any]:
        """The results of each call. None: it was refused."""
        try:
            program = pteron.load(data, device=self._device, fuse=fuse)
        except PteronError as error:
            outcome.findings.append(_refusal(record, f"load: {error}"))
            return []
        with program:
            try:
                methods = [program.method(name) for name in program.method_names]
            except PteronError as error:
                outcome.findings.append(_refusal(record, f"load: {error}"))
                return []
            return [
                self._call(methods[number % len(methods)], record, point, outcome)
                for number, point in enumerate(record.calls)
            ]

    def _call(self, method: Method, record: Record, point: int, outcome: Outcome) -> Any:
        inputs = [tensor_of(record.sources[name], point) for name in record.inputs]
        poison(method)
        outcome.calls += 1
        try:
            return [_as_torch(value) for value in method.execute(inputs)]
        except PteronError as error:
            outcome.findings.append(_refusal(record, f"call: {error}"))
            return None

    def run_exported(self, program: Any) -> Outcome:
        """Compare the results of both files with torch and with ExecuTorch. One of them must agree."""
        outcome = Outcome(reached=set(program.kernels.split()))
        for kind, data in program.files.items():
            try:
                with pteron.load(data, device=self._device) as loaded:
                    method = loaded.method()
                    for number, inputs in enumerate(program.inputs):
                        poison(method)
                        outcome.calls += 1
                        results = [_as_torch(value) for value in method.execute(inputs)]
                        self._judge_results(kind, number, results, program, outcome)
            except PteronError as error:
                text = f"{kind}: {' '.join(str(error).split())[:300]}"
                if program.executorch:
                    outcome.findings.append(Finding("refuses", program.kernels, text))
                else:  # the exporter has written what its own runtime refuses
                    outcome.refusals.append((f"ExecuTorch and Pteron ({kind})", "a file", text[:100]))
        return outcome

    def _judge_results(
        self, kind: str, number: int, results: list[Any], program: Any, outcome: Outcome
    ) -> None:
        references = [made[number] for made in (program.torch, program.executorch) if made]
        for place, mine in enumerate(results):
            outcome.checks += 1
            problems = [_unlike(mine, theirs[place]) for theirs in references]
            if all(problems):
                detail = f"{kind}, call {number}, result {place}: {problems[0]}"
                outcome.findings.append(Finding("exported", program.kernels, detail))

    def _judge(self, checked: Checked, outcome: Outcome) -> None:
        outcome.checks += 1
        kernel = checked.kernel
        outcome.refusals += [(who, kernel, why) for who, why in checked.refused.items()]
        if not checked.differs and not checked.refused:
            return
        if checked.agrees:
            if checked.differs:
                outcome.only.append((kernel, checked.agrees[0]))
            return
        if checked.differs:
            who = TORCH if TORCH in checked.differs else EXECUTORCH
            detail = f"{who}: {checked.differs[who]}"
            outcome.findings.append(Finding("differs", kernel, detail, checked.step))
        else:
            reasons = "; ".join(f"{who}: {why}" for who, why in checked.refused.items())
            outcome.findings.append(Finding("accepts", kernel, reasons, checked.step))

    def _check_fused(self, record: Record, bounds: Bounds, wanted: list[Any], outcome: Outcome) -> None:
        """The same program with only its results as outputs: memory is shared, and nodes are joined."""
        if any(step.kernel in ANY_CONTENTS for step in record.steps):
            return
        if not record.results:
            return
        data = written(dict.fromkeys(METHODS[: record.methods], (record, bounds, record.results)))
        for number, results in enumerate(self._calls(data, record, outcome, None)):
            want = wanted[number]
            if results is None or want is None:
                continue
            for name, mine, theirs in zip(record.results, results, want, strict=True):
                if problem := _unlike(mine, theirs):
                    kernels = " ".join(step.kernel for step in record.steps)
                    outcome.findings.append(Finding("fused", kernels, f"{name}, call {number}: {problem}"))
                    return


def _options(record: Record) -> set[str]:
    return set().union(*(options(step.kernel, step.args) for step in record.steps))


def _refusal(record: Record, text: str) -> Finding:
    steps = {step.kernel: n for n, step in enumerate(record.steps)}
    named = [kernel for kernel in steps if kernel.partition("::")[2].partition(".")[0] in text]
    kernel = max(named, key=len) if named else next(iter(steps), "")
    return Finding("refuses", kernel, " ".join(text.split())[:300], steps.get(kernel, -1))


def _unlike(got: Any, want: Any) -> str | None:
    """A fused kernel does not round between its steps, so 16-bit floats may be off by more."""
    if not isinstance(want, torch.Tensor):
        return None if got == want else f"expected {want}, got {got}"
    if (got.dtype, got.shape) != (want.dtype, want.shape):
        return f"expected {want.dtype} {tuple(want.shape)}, got {got.dtype} {tuple(got.shape)}"
    if want.is_complex():
        return _unlike(torch.view_as_real(got), torch.view_as_real(want))
    short = want.dtype in (torch.float16, torch.bfloat16)
    rtol = 5e-2 if short else 1e-3
    if want.is_floating_point():
        finite = want[want.isfinite()].double().abs()
        atol = rtol * float(finite.max()) if finite.numel() else 0.0
        good = torch.isclose(got.double(), want.double(), rtol, atol, equal_nan=True)
    else:
        good = got == want
    if good.all():
        return None
    place = int((~good).flatten().nonzero()[0])
    wanted, found = (values.flatten()[place].item() for values in (want, got))
    return f"expected {wanted!r}, got {found!r} at {place} of {tuple(want.shape)}"


def _as_torch(value: Any) -> Any:
    return value if isinstance(value, (int, torch.Tensor)) else torch.as_tensor(value)
