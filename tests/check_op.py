"""Prove a new or changed operator in about a minute: `make check-op NAME=aten.gelu.default`.

Each step prints what it found, or which file wants what. Exit code 1: something is missing or wrong.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import pteron
from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ir.op import OpSpec
from pteron.compiler.ops import registered
from pteron.compiler.plan.routes import ByName
from pteron.compiler.sketch import found, replaced
from pteron.engine.devices.opening import Device, open_device
from pteron.tools.verify.catalogue import CATALOGUE, OperatorEntry, cases
from pteron.tools.verify.catalogue.arguments import Drawing, Position, T
from pteron.tools.verify.selftest import run_selftest
from pteron.tools.verify.single_node import open_graph
from tests.support import tint
from tests.support.compare import disagreements
from tests.support.export import export
from tests.support.operators.coverage import file_of, kernels_of, missing_cases, missing_entries
from tests.support.operators.docs import PATH, line
from tests.support.operators.graphs import LiveEntry, product_of, texts_of

ROOT = Path(__file__).parents[1]
GUIDE = "docs/adding-an-operator.md"
TESTS = (
    "tests/ops",
    "tests/pure/test_kernels.py",
    "tests/pure/test_operator_docs.py",
    "tests/pure/test_shader_texts.py",
    "tests/pure/test_work.py",
)
STEPS = ("catalogue", "table", "naga", "tint", "export", "lint", "tests")
TORCH_DTYPES = (DType.float32, DType.int32, DType.int64, DType.bool, DType.int8, DType.uint8, DType.complex64)


class Check:
    """The steps for one operator. Each yields problems, in words that say which file wants what."""

    def __init__(self, name: str, spec: OpSpec, device: Device) -> None:
        self.name, self.spec, self.device = name, spec, device
        self.entries = CATALOGUE.get(name, [])
        products = product_of(self.entries)
        self.routes = [route for each in products for route in LiveEntry(*each, ByName()).routes]

    def catalogue(self) -> Iterator[str]:
        """One entry, and a case for each kernel and route."""
        yield from missing_entries([self.name])
        yield from missing_cases([self.name])

    def table(self) -> Iterator[str]:
        """The line in docs/operators.md."""
        if self.entries and line(self.name) not in PATH.read_text("utf-8"):
            yield "docs/operators.md is not current: run `make docs`"

    def naga(self) -> Iterator[str]:
        """All kernels that this device can run, against numpy where there is a reference."""
        for entry in self.entries:
            for dtype in entry.dtypes:
                try:
                    with open_graph(entry.graph(dtype), self.device, self.device.route_features, ByName()):
                        pass
                except pteron.PteronError as error:
                    yield f"{dtype}: {error}"
        report = run_selftest(self.device, [case for case in cases() if case.op == self.name])
        yield from map(str, report.findings)

    def tint(self) -> Iterator[str]:
        """The same kernels and those of other devices, in Chrome's compiler."""
        if not tint.INSTALLED:
            print("      Tint is not installed: `make setup` does that")
            return
        dispatches = [dispatch for route in self.routes for dispatch in route.dispatches]
        kernels = {
            text: dispatch.kernel for text, dispatch in zip(texts_of(dispatches), dispatches, strict=True)
        }
        with TemporaryDirectory() as folder:
            errors = tint.compile_all(list(kernels), Path(folder))
        yield from (f"{k}.wgsl: {error}" for k, error in zip(kernels.values(), errors, strict=True) if error)

    def export(self) -> Iterator[str]:
        """A program that torch exports gives torch's results."""
        function = torch_function(self.name)
        entry = next((each for each in self.entries if set(each.dtypes) & set(TORCH_DTYPES)), None)
        if function is None or entry is None:
            print("      torch has no such operator")
            return
        yield from _exported(function, entry, self.device)

    def lint(self) -> Iterator[str]:
        """The rule, its catalogue file and all changed files."""
        changed = _run("git", "diff", "--name-only", "--diff-filter=d", "HEAD")
        changed += _run("git", "ls-files", "--others", "--exclude-standard")
        rule = Path(sys.modules[self.spec.rule.__module__].__file__ or "").relative_to(ROOT)
        files = sorted({path for path in (*changed, str(rule), file_of(self.name)) if path.endswith(".py")})
        typed = [path for path in files if path.startswith("src/")]
        said = _python("ruff", "check", "-q", "--output-format", "concise", *files)
        said += [line for line in _python("ruff", "format", "--check", *files) if line.startswith("Would")]
        said += [line for line in _python("mypy", *typed) if "error:" in line]
        yield from said

    def tests(self) -> Iterator[str]:
        """Those with the operator's name."""
        base = self.name.split(".")[1] if "." in self.name else self.name
        words = {base, *(kernel for route in self.routes for kernel in kernels_of(route))}
        said = _python("pytest", "-q", "-rfEp", "-k", " or ".join(words), *TESTS)
        print(f"      {said[-1]}")
        if not any(" tests/ops/" in line for line in said):
            yield f"torch has no {base}: add a test with its name to tests/ops, with a reference (check_rule)"
        yield from (problem for problem in said if problem.startswith(("FAILED", "ERROR")))


def torch_function(name: str) -> Any:
    import torch

    space, _, rest = name.partition(".")
    base, _, overload = rest.partition(".")
    packet = getattr(getattr(torch.ops, space, None), base, None) if space == "aten" else None
    return getattr(packet, overload, None)


def _exported(function: Any, entry: OperatorEntry, device: Device) -> Iterator[str]:
    import torch

    dtype = next(each for each in TORCH_DTYPES if each in entry.dtypes)
    args = list(entry.make(entry.sizes[0]))[: len(entry.spec.parameters) - 1]
    drawn = Drawing(dtype).all(args)
    tensors = tuple(torch.from_numpy(np.array(x)) for x in found(drawn, (np.ndarray,)))

    class Module(torch.nn.Module):
        def forward(self, *given: torch.Tensor) -> Any:
            left = iter(given)
            filled = replaced(
                args, (T, Position), lambda leaf: next(left) if isinstance(leaf, T) else leaf.value
            )
            schema = function._schema.arguments
            named = {a.name: x for a, x in zip(schema, filled, strict=False) if a.kwarg_only}
            return function(*filled[: len(filled) - len(named)], **named)

    try:
        program = export(Module(), tensors, any_operator=True)
    except Exception as error:  # of torch or ExecuTorch
        print(f"      is not exported: {type(error).__name__}: {str(error).strip().splitlines()[0][:100]}")
        return
    wanted = torch.utils._pytree.tree_leaves(Module()(*tensors))
    try:
        with pteron.load(program, device=device, tune=False) as loaded:
            made = loaded.method().execute(list(tensors))
    except pteron.PteronError as error:
        yield f"the exported program does not run: {error}"
    else:
        yield from disagreements(made, wanted, 1e-4, 1e-5, nan=True)


def _run(*command: str) -> list[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.splitlines()


def _python(*module: str) -> list[str]:
    return _run(sys.executable, "-m", *module)


def main(name: str) -> int:
    spec = registered().get(name)
    if spec is None:
        print(f"{name} is not registered: write its rule in src/pteron/compiler/ops, see {GUIDE}")
        return 1
    with closing(open_device()) as device:
        check = Check(name, spec, device)
        if not check.entries and _report(check.catalogue):
            print("      All other steps use this entry.")
            return 1
        failed = [step for step in STEPS if _report(getattr(check, step))]
    return int(bool(failed))


def _report(step: Callable[[], Iterator[str]]) -> bool:
    """Run a step, and return whether it found problems."""
    problems = list(step())
    print(f"{'FAIL' if problems else 'ok':4}  {step.__name__}: {step.__doc__}", flush=True)
    for problem in problems:
        print(f"      {problem}", flush=True)
    return bool(problems)


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    sys.exit(main(*sys.argv[1:]))
