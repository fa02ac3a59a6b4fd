"""The programs that ExecuTorch's own tests of its XNNPACK delegate export and run.

Those tests run here as they are, with ExecuTorch's runtime. Whenever one of them compares a result with
torch, the same file is run by Pteron, and compared with the result of ExecuTorch's runtime.
"""

from __future__ import annotations

import importlib
import unittest
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from copy import deepcopy
from dataclasses import dataclass, field
from hashlib import sha256
from io import StringIO
from typing import Any
from unittest import mock

import torch

import pteron
from pteron.engine.devices.opening import Device
from tests.support.calls import Call, problems_of

WHEEL = "executorch.backends.xnnpack.test"


@dataclass
class Replay:
    """Runs by Pteron of what ExecuTorch's runtime has run."""

    device: Device
    programs: set[bytes] = field(default_factory=set)
    runs: int = 0
    problems: list[str] = field(default_factory=list)

    def check(self, what: str, run: Run, rtol: float, atol: float) -> None:
        self.runs += 1
        self.programs.add(sha256(run.buffer).digest())
        try:
            with pteron.load(run.buffer, device=self.device, tune=False) as program:
                call = Call(run.inputs, run.outputs)
                found = list(problems_of(program.method(), [call], rtol, atol, nan=True))
        except pteron.PteronError as error:
            found = [str(error)]
        self.problems += [f"{what}: {problem}" for problem in found]


@dataclass(frozen=True)
class Run:
    """A run by ExecuTorch."""

    buffer: bytes
    inputs: Sequence[Any]
    outputs: Sequence[Any]


def replay(name: str, device: Device) -> Replay:
    """Run the tests of a module of the wheel, and each of their programs by Pteron."""
    import executorch.kernels.quantized  # noqa: F401  registers kernels

    torch.manual_seed(0)
    made = Replay(device)
    tests = unittest.defaultTestLoader.loadTestsFromModule(importlib.import_module(f"{WHEEL}.{name}"))
    with redirect_stdout(StringIO()):
        for test in _each(tests):
            with _watched(made, test.id().rpartition(".")[2]):
                test.run(unittest.TestResult())  # whether it passes is its own affair
    return made


def _each(suite: unittest.TestSuite | unittest.TestCase) -> Iterator[unittest.TestCase]:
    if isinstance(suite, unittest.TestCase):
        yield suite
        return
    for test in suite:
        yield from _each(test)


@contextmanager
def _watched(made: Replay, what: str) -> Iterator[None]:
    from executorch.backends.test.harness import Tester
    from executorch.backends.test.harness.stages import Serialize

    runs: list[Run] = []
    run_artifact: Callable[..., Any] = Serialize.run_artifact
    compare: Callable[..., None] = Tester._compare_outputs

    def running(stage: Any, inputs: Any) -> Any:
        given = deepcopy(torch.utils._pytree.tree_leaves(inputs))  # a program may change them
        outputs = run_artifact(stage, inputs)
        runs.append(Run(bytes(stage.buffer), given, outputs))
        return outputs

    def comparing(
        reference: Any,
        outputs: Any,
        scale: float | None = None,
        atol: float = 1e-3,
        rtol: float = 1e-3,
        qtol: float = 0,
        statistics: Any = None,
    ) -> None:
        if runs:
            made.check(what, runs.pop(), rtol, atol + qtol * (scale or 0.0))
        compare(reference, outputs, scale, atol, rtol, qtol, statistics)

    with (
        mock.patch.object(Serialize, "run_artifact", running),
        mock.patch.object(Tester, "_compare_outputs", staticmethod(comparing)),
    ):
        yield
