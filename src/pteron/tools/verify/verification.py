"""`pteron.verify`: a file or program node by node and method by method, or a program against a module."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from pteron._util.extras import needs
from pteron._util.progress import NotebookBar, Progress
from pteron.api.loading import load
from pteron.api.method import Method
from pteron.api.program import Program
from pteron.compiler.ir.values import Tensor
from pteron.compiler.plan.routes import ByName
from pteron.compiler.plan.sweep import plan
from pteron.engine.devices.opening import Device, open_device
from pteron.errors import InputError
from pteron.tools.verify import executorch_runtime
from pteron.tools.verify.bundled_tests import run_tests
from pteron.tools.verify.comparison import Difference, compare, worst
from pteron.tools.verify.executorch_runtime import ExecutorchRuntime
from pteron.tools.verify.failure import save_failure
from pteron.tools.verify.kernel_reference import KernelReference
from pteron.tools.verify.method_reference import compare_methods
from pteron.tools.verify.references import FirstOf, NoReference, Reference, other_device, portable
from pteron.tools.verify.samples import accepted_inputs, random_inputs, why_no_more_shapes
from pteron.tools.verify.single_node import SingleNode
from pteron.tools.verify.verify_report import NodeResult, VerifyReport
from pteron.tools.verify.walk import NodeRun, walk
from pteron.tools.verify.whole_outputs import compare_outputs


def verify(
    program: Any,
    reference: Any = None,
    inputs: Sequence[Any] | None = None,
    *,
    method: str | None = None,
    against: str | None = None,
    all_routes: bool = False,
    save: str | Path | None = None,
    device: Any = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> VerifyReport:
    """Compare what a program computes on this device with a reference.

    Args:
        program: A `.pte` file or a loaded program.
        reference: A torch module, an exported program or a `.pt2` file. The outputs of the whole program are
            compared with its outputs. Default: each node is compared by itself, with its real inputs; and
            whole methods, with ExecuTorch's runtime if it can run the file.
        inputs: The inputs of one call. Default: random inputs at several live shapes.
        method: The method to verify. Default: all methods; `forward` if `inputs` or `reference` are given.
        against: What computes a node again: `"executorch"` (its own kernels; torch where it has none);
            `"torch"`; `"portable"` (the kernels that every device can run, on this device); `"software"` or
            the name of another adapter. Default: the first of executorch, torch and portable that is
            installed.
        all_routes: Verify all kernels that fit, not only those that a call uses.
        save: A folder for the node and the inputs of each failure, to attach to a bug report.
        device: An adapter's index or part of its name, or an open device.
        seed: The seed of random inputs.
        progress: A function that is called between calls, with what is being done, the number of calls done,
            and of all calls.
            Default: a bar in notebooks.

    Returns:
        A report. `report.ok` says whether every verified result is right.

    Example:
        ```python
        report = pteron.verify("model.pte")
        report.ok, report.first_bad, report.worst(5)
        ```
    """
    if reference is not None:
        with opened_program(program, device) as loaded:
            return _whole(loaded.method(method or "forward"), reference, inputs)
    if method is None and inputs is not None:
        method = "forward"
    runtime = executorch_runtime.shared()
    with opened_program(program, device) as loaded:
        against = against or best_reference()
        names = computing_methods(loaded) if method is None else (method,)
        folder = None if save is None else Path(save)
        shown = progress or NotebookBar("verifying")
        with open_reference(against, loaded.device, runtime) as judge:
            judges = [Judge(loaded.method(name), judge, all_routes, folder) for name in names]
            reports = [judge.report(inputs, seed, shown) for judge in judges]
        wholes: list[NodeResult] = []
        notes = []
        if inputs is None:
            wholes += [result for name in names for result in run_tests(loaded, name)]
        if against == "executorch" and inputs is None:
            try:
                wholes += compare_methods(loaded, names, runtime, seed)
            except NoReference as error:
                notes = [f"not compared as a whole: {error}"]
        return VerifyReport(
            tuple(names),
            loaded.device.name,
            tuple(shapes for report in reports for shapes in report.shapes),
            (*(result for report in reports for result in report.results), *wholes),
            (*(note for report in reports for note in report.notes), *notes),
        )


def computing_methods(program: Program) -> tuple[str, ...]:
    """The methods that compute something. Others only return constants, such as settings of a model."""
    return tuple(name for name in program.method_names if program.method(name).graph.nodes)


class Judge:
    """Compares the nodes of a method with a reference."""

    def __init__(
        self, method: Method, reference: Reference, all_routes: bool = False, save: Path | None = None
    ) -> None:
        self.method = method
        self.reference = reference
        self.all_routes = all_routes
        self.save = save

    def report(self, inputs: Sequence[Any] | None, seed: int, progress: Progress) -> VerifyReport:
        refused: list[str] = []
        calls = [inputs] if inputs is not None else list(accepted_inputs(self.method, seed, refused))
        results: list[NodeResult] = []
        shapes = []
        for number, given in enumerate(calls):
            progress("verifying", number, len(calls))
            self.method.reset()
            for run in walk(self.method, given):
                results += self.judge(run)
            live = self.method.live_shapes
            shapes.append({info.name: live[info.name] for info in self.method.inputs if info.is_tensor})
        self.method.reset()
        progress("verifying", len(calls), len(calls))
        name = self.method.name
        notes = () if inputs is not None else why_no_more_shapes(self.method, len(calls), refused)
        return VerifyReport((name,), self.method.device.name, tuple(shapes), tuple(results), notes)

    def judge(self, run: NodeRun) -> Iterator[NodeResult]:
        """The result of the route that the call used, and of the others if they are wanted."""
        try:
            want = self.reference.outputs(self.method.graph, run)
        except NoReference as error:
            yield self._result(run, "", str(error), [])
            return
        yield self._judged(run, want)
        if self.all_routes:
            for other in self._by_other_routes(run):
                yield self._judged(other, want)

    def _judged(self, run: NodeRun, want: Sequence[Any]) -> NodeResult:
        result = self._result(run, self.reference.name, "", differences(run, want))
        if result.is_bad and self.save is not None:
            path = save_failure(self.save, self.method.graph, run, want)
            return replace(result, saved=str(path))
        return result

    def _result(self, run: NodeRun, reference: str, note: str, found: list[Difference]) -> NodeResult:
        difference = worst(found)
        reads = [value for value in run.node.reads if isinstance(value, Tensor)]
        return NodeResult(
            run.node.index,
            run.node.name,
            run.route,
            run.kernels,
            tuple(tuple(run.given[tensor.id].shape) for tensor in reads),
            reference,
            difference.share,
            found.index(difference) if found else 0,
            difference.element,
            difference.expected,
            difference.found,
            note,
            method=self.method.name,
        )

    def _by_other_routes(self, run: NodeRun) -> Iterator[NodeRun]:
        """The node alone, by each route that fits and that the call did not use."""
        alone = SingleNode(self.method.graph, run.node)
        device = self.method.device
        for route in plan(alone.graph, device.route_features, ByName(run.route)).routes[0]:
            if route.name == run.route:
                continue
            with (
                alone.open(device, device.route_features, ByName(route.name)) as method,
                method.prepare(*alone.given(run)) as call,
            ):
                (step,) = call.steps()
                if step.route == route.name:
                    made = call.submit().result()
                    yield replace(run, route=step.route, kernels=step.kernels, made=made)


def differences(run: NodeRun, want: Sequence[Any]) -> list[Difference]:
    """The worst element of each result."""
    floats = [np.abs(a) for a in run.given.values() if isinstance(a, np.ndarray) and a.dtype.kind == "f"]
    largest = max((float(a[np.isfinite(a)].max(initial=0.0)) for a in floats), default=0.0)
    return [
        compare(run.node.name, tensor.dtype, got, expected, largest)
        for tensor, got, expected in zip(run.results, run.made, want, strict=True)
    ]


def _whole(method: Method, reference: Any, inputs: Sequence[Any] | None) -> VerifyReport:
    """The outputs of a program against those of a torch module, for the same inputs."""
    with needs("export", "to run the reference"):
        from pteron.tools.verify.whole_program import outputs_of
    given = random_inputs(method, None, 0) if inputs is None else list(inputs)
    method.reset()
    got = method.execute(given)
    wanted = outputs_of(reference, given)
    if len(wanted) != len(got):
        raise InputError(f"the reference returns {len(wanted)} outputs, the program {len(got)}")
    results = compare_outputs(method, got, wanted, "the reference")
    return VerifyReport((method.name,), method.device.name, (dict(method.live_shapes),), tuple(results))


@contextmanager
def opened_program(program: Any, device: Any) -> Iterator[Program]:
    if isinstance(program, Program):
        yield program
    else:
        with load(program, device=device, methods=()) as loaded:
            yield loaded


def best_reference() -> str:
    """The name of the first reference that is installed."""
    if executorch_runtime.is_installed():
        return "executorch"
    return "torch" if find_spec("torch") else "portable"


@contextmanager
def open_reference(against: str, device: Device, runtime: ExecutorchRuntime) -> Iterator[Reference]:
    """See `verify` for the names."""
    if against == "portable":
        yield portable(device)
    elif against in ("torch", "executorch"):
        with needs("export", f'to verify against {against} (against="portable" needs no torch)'):
            from pteron.tools.verify.fused_reference import FusedReference
            from pteron.tools.verify.numpy_reference import NumpyReference
            from pteron.tools.verify.torch_reference import TorchReference
        nodes: list[Reference] = [TorchReference(), NumpyReference()]
        # A fused kernel does not round between its steps. So the reference does not round there, either.
        steps: list[Reference] = [TorchReference(keep_float32=True), NumpyReference()]
        if against == "executorch":
            nodes.insert(0, KernelReference(runtime))
            steps.insert(0, KernelReference(runtime, keep_float32=True))
        yield FirstOf(*nodes, FusedReference(FirstOf(*steps)), portable(device))
    else:
        other = open_device(against)
        try:
            yield other_device(other)
        finally:
            other.close()
