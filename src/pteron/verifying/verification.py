"""`pteron.verify`: a file or program node by node, or a whole program against a module."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from pteron.devices import open_device
from pteron.errors import InputError
from pteron.extras import needs
from pteron.ir.values import Tensor
from pteron.loading import load
from pteron.method import Method
from pteron.notebook_bar import NotebookBar
from pteron.program import Program
from pteron.verifying.comparison import Difference, compare, worst
from pteron.verifying.failure import save_failure
from pteron.verifying.references import FirstOf, NoReference, Reference, other_device, portable
from pteron.verifying.samples import random_inputs, sizes_to_try
from pteron.verifying.single_node import ByName, SingleNode
from pteron.verifying.verify_report import NodeResult, VerifyReport
from pteron.verifying.walk import NodeRun, walk


def verify(
    program: Any,
    reference: Any = None,
    inputs: Sequence[Any] | None = None,
    *,
    method: str = "forward",
    against: str | None = None,
    all_routes: bool = False,
    save: str | Path | None = None,
    device: Any = None,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> VerifyReport:
    """Compare what a program computes on this device with a reference.

    Args:
        program: A `.pte` file or a loaded program.
        reference: A torch module, an exported program or a `.pt2` file. The outputs of the whole program are
            compared with its outputs. Default: each node is compared by itself, with its real inputs.
        inputs: The inputs of one call. Default: random inputs at several live shapes.
        method: The method to verify.
        against: What computes a node again: `"torch"`; `"portable"` (the kernels that every device can run,
            on this device); `"software"` or the name of another adapter. Default: torch if it is installed,
            else portable.
        all_routes: Verify all kernels that fit, not only those that a call uses.
        save: A folder for the node and the inputs of each failure, to attach to a bug report.
        device: An adapter's index or part of its name, or an open device.
        seed: The seed of random inputs.
        progress: A function that is called between calls, with the number of calls done and of all calls.
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
        with _opened(program, device) as loaded:
            return _whole(loaded.method(method), reference, inputs)
    with _opened(program, device) as loaded, _reference(against, loaded) as judge:
        judged = Judge(loaded.method(method), judge, all_routes, None if save is None else Path(save))
        return judged.report(inputs, seed, progress or NotebookBar("verifying").count)


class Judge:
    """Compares the nodes of a method with a reference."""

    def __init__(self, method: Method, reference: Reference, all_routes: bool, save: Path | None) -> None:
        self.method = method
        self.reference = reference
        self.all_routes = all_routes
        self.save = save

    def report(
        self, inputs: Sequence[Any] | None, seed: int, progress: Callable[[int, int], None]
    ) -> VerifyReport:
        calls = [inputs] if inputs is not None else list(self._samples(seed))
        results: list[NodeResult] = []
        shapes = []
        for number, given in enumerate(calls):
            progress(number, len(calls))
            self.method.reset()
            for run in walk(self.method, given):
                results += self.judge(run)
            live = self.method.live_shapes
            shapes.append({info.name: live[info.name] for info in self.method.inputs if info.is_tensor})
        self.method.reset()
        progress(len(calls), len(calls))
        return VerifyReport(self.method.name, self.method.device.name, tuple(shapes), tuple(results))

    def _samples(self, seed: int) -> Iterator[Sequence[Any]]:
        """Random inputs at the live shapes that the program accepts."""
        for size in sizes_to_try(self.method):
            given = random_inputs(self.method, size, seed)
            try:
                self.method.execute(given)
            except InputError:
                if size is None:
                    raise
                continue
            yield given

    def judge(self, run: NodeRun) -> Iterator[NodeResult]:
        """The result of the route that the call used, and of the others if they are wanted."""
        try:
            want = self.reference.outputs(self.method.graph, run)
        except NoReference as error:
            yield _result(run, "", str(error), [])
            return
        yield self._judged(run, want)
        if self.all_routes:
            for other in self._by_other_routes(run):
                yield self._judged(other, want)

    def _judged(self, run: NodeRun, want: Sequence[Any]) -> NodeResult:
        result = _result(run, self.reference.name, "", differences(run, want))
        if result.is_bad and self.save is not None:
            path = save_failure(self.save, self.method.graph, run, want)
            return replace(result, saved=str(path))
        return result

    def _by_other_routes(self, run: NodeRun) -> Iterator[NodeRun]:
        """The node alone, by each route that fits and that the call did not use."""
        alone = SingleNode(self.method.graph, run.node)
        device = self.method.device
        with alone.opened(device, device.route_features, ByName(run.route)) as method:
            names = [route.name for route in method._live.routes[0]]
        for name in names:
            if name == run.route:
                continue
            with alone.opened(device, device.route_features, ByName(name)) as method:
                made = alone.repeat(method, run)
                plan = method._live.plans[0]
                assert plan is not None
                if plan.route == name:
                    kernels = tuple(dispatch.kernel for dispatch in plan.dispatches)
                    yield replace(run, route=name, kernels=kernels, made=made)


def differences(run: NodeRun, want: Sequence[Any]) -> list[Difference]:
    """The worst element of each result."""
    floats = [np.abs(a) for a in run.given.values() if isinstance(a, np.ndarray) and a.dtype.kind == "f"]
    largest = max((float(a[np.isfinite(a)].max(initial=0.0)) for a in floats), default=0.0)
    return [
        compare(run.node.name, tensor.dtype, got, expected, largest)
        for tensor, got, expected in zip(run.results, run.made, want, strict=True)
    ]


def _result(run: NodeRun, reference: str, note: str, found: list[Difference]) -> NodeResult:
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
    )


def _whole(method: Method, reference: Any, inputs: Sequence[Any] | None) -> VerifyReport:
    """The outputs of a program against those of a torch module, for the same inputs."""
    with needs("export", "to run the reference"):
        from pteron.verifying.whole_program import outputs_of
    given = random_inputs(method, None, 0) if inputs is None else list(inputs)
    method.reset()
    got = method.execute(given)
    wanted = outputs_of(reference, given)
    if len(wanted) != len(got):
        raise InputError(f"the reference returns {len(wanted)} outputs, the program {len(got)}")
    results = []
    for number, (port, mine, want) in enumerate(zip(method.graph.outputs, got, wanted, strict=True)):
        if isinstance(port.value, Tensor):
            found = compare("", port.value.dtype, np.asarray(mine), want, 0.0)
            results.append(
                NodeResult(
                    number, f"output {port.name}", "", (), (), "the reference", found.share, number,
                    found.element, found.expected, found.found,
                )
            )  # fmt: skip
    return VerifyReport(method.name, method.device.name, (dict(method.live_shapes),), tuple(results))


@contextmanager
def _opened(program: Any, device: Any) -> Iterator[Program]:
    if isinstance(program, Program):
        yield program
    else:
        with load(program, device=device) as loaded:
            yield loaded


@contextmanager
def _reference(against: str | None, program: Program) -> Iterator[Reference]:
    if against is None:
        against = "torch" if find_spec("torch") else "portable"
    if against == "portable":
        yield portable(program.device)
    elif against == "torch":
        with needs("export", 'to verify against torch (against="portable" needs no torch)'):
            from pteron.verifying.fused_reference import FusedReference
            from pteron.verifying.torch_reference import TorchReference
        yield FirstOf(TorchReference(), FusedReference(), portable(program.device))
    else:
        device = open_device(against)
        try:
            yield other_device(device)
        finally:
            device.close()
