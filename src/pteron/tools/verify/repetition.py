"""The same call many times: are its results the same, bit by bit, and which node differs first?

    report = repeat("model.pte", count=100)     # `pteron verify model.pte --repeat 100`
    report.ok, report.differences

Every second call finds the memory between nodes poisoned; the others find what the call before has left
there. So a kernel that reads memory that nothing has written gives different results, and so does a race.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from pteron._util.progress import NotebookBar, Progress
from pteron.api.method import Method
from pteron.compiler.ir.values import Tensor
from pteron.tools.verify.samples import accepted_inputs
from pteron.tools.verify.verification import computing_methods, opened_program
from pteron.tools.verify.walk import Array, walk

NO_NODE = "alone, every node gives the same: something is wrong between nodes, such as a missing dependency"


@dataclass(frozen=True, slots=True)
class ResultDifference:
    """A result that two calls with the same inputs do not share.

    Attributes:
        method: The name of the method.
        shapes: The live shapes of its inputs.
        where: The node and its kernels, or the output or state of the method.
        call: The number of the call, from 2 on. It is compared with the first one.
        element: The first element that differs.
        first: Its value in the first call.
        later: Its value in this call.
        note: Why the node is not known.
    """

    method: str
    shapes: dict[str, Any]
    where: str
    call: int
    element: tuple[int, ...]
    first: Any
    later: Any
    note: str = ""

    def __str__(self) -> str:
        told = f"{self.method}, {self.where}, element {list(self.element)}: {self.first} in the first call"
        return f"{told}, {self.later} in call {self.call}" + (f" ({self.note})" if self.note else "")


@dataclass(frozen=True, slots=True)
class RepeatReport:
    """What differed. It is true if nothing did.

    Attributes:
        methods: The names of the methods.
        adapter: The GPU.
        count: How often each call was made.
        shapes: The live shapes of the inputs, one entry per call.
        differences: The first difference at each live shape.
    """

    methods: tuple[str, ...]
    adapter: str
    count: int
    shapes: tuple[dict[str, Any], ...]
    differences: tuple[ResultDifference, ...]

    @property
    def ok(self) -> bool:
        """Whether all results are the same, bit by bit."""
        return not self.differences

    def __bool__(self) -> bool:
        return self.ok

    def as_json(self) -> dict[str, Any]:
        """The report as `pteron verify --repeat --json` prints it."""
        told = asdict(self)
        told["device"] = told.pop("adapter")
        return {"ok": self.ok, **told}

    def __str__(self) -> str:
        calls = f"{self.count} calls of {', '.join(self.methods)} on {self.adapter}, at each of "
        calls += f"{len(self.shapes)} live shapes"
        if self.ok:
            return f"{calls}: the same results, bit by bit."
        return f"{calls}: results differ. First: {self.differences[0]}"


def repeat(
    program: Any,
    inputs: Sequence[Any] | None = None,
    *,
    count: int = 10,
    method: str | None = None,
    device: Any = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> RepeatReport:
    """Make the same call many times, and compare all results bit by bit.

    Args:
        program: A `.pte` file or a loaded program.
        inputs: The inputs of the call. Default: random inputs at several live shapes.
        count: How often.
        method: The method to call. Default: all methods; `forward` if `inputs` are given.
        device: An adapter's index or part of its name, or an open device.
        seed: The seed of random inputs.
        progress: A function that is called with what is being done, the number of inputs done, and of all
            inputs. Default: a bar in notebooks.

    Returns:
        A report. `report.ok` says whether all results are the same.
    """
    if method is None and inputs is not None:
        method = "forward"
    shown = progress or NotebookBar("repeating")
    with opened_program(program, device) as loaded:
        names = computing_methods(loaded) if method is None else (method,)
        jobs = [
            (loaded.method(name), given)
            for name in names
            for given in ([inputs] if inputs is not None else accepted_inputs(loaded.method(name), seed, []))
        ]
        shapes, found = [], []
        for number, (each, given) in enumerate(jobs):
            shown("repeating", number, len(jobs))
            difference = _difference(each, given, count)
            shapes.append(_shapes(each))
            found += [difference] if difference else []
            each.reset()
        shown("repeating", len(jobs), len(jobs))
        return RepeatReport(tuple(names), loaded.device.name, count, tuple(shapes), tuple(found))


def _difference(method: Method, given: Sequence[Any], count: int) -> ResultDifference | None:
    """The first result that differs: of a node if one differs alone, else of the whole call."""
    first = _call(method, given, False)
    for number in range(1, count):
        for (where, before), (_, now) in zip(first, _call(method, given, number % 2 == 1), strict=True):
            element = first_difference(before, now)
            if element is not None:
                told = method.name, _shapes(method), number + 1
                return _first_node(method, given, max(count, 2)) or _told(
                    *told, where, before, now, element, NO_NODE
                )
    return None


def _call(method: Method, given: Sequence[Any], poisoned: bool) -> list[tuple[str, Array]]:
    """The outputs and the states after one call, which begins with a new state."""
    method.reset()
    graph = method.graph
    with method.prepare(*given) as call:
        if poisoned:
            call.poison()
        made = call.submit().result()
        outputs = [
            (f"output {port.name}", np.asarray(array))
            for port, array in zip(graph.outputs, made, strict=True)
            if isinstance(port.value, Tensor)
        ]
        changed = {tensor.id for node in graph.nodes for tensor in node.mutates}
        states = [(f"state {t.name}", call.read(t)) for t in graph.states if t.id in changed]
    return outputs + states


def _first_node(method: Method, given: Sequence[Any], count: int) -> ResultDifference | None:
    """The first node in program order whose results differ when the nodes run one by one."""
    first: list[list[Array]] = []
    found: ResultDifference | None = None
    for number in range(count):
        method.reset()
        for place, run in enumerate(walk(method, given, poisoned=number % 2 == 1)):
            if number == 0:
                first.append(run.made)
                continue
            if place >= len(first):
                break
            for output, (before, now) in enumerate(zip(first[place], run.made, strict=True)):
                element = first_difference(before, now)
                if element is not None:
                    kernels = " + ".join(run.kernels)
                    where = f"node {run.node.index}, {run.node.name}, kernel {kernels}, output {output}"
                    found = _told(method.name, _shapes(method), number + 1, where, before, now, element)
                    del first[place:]  # only an earlier node is of interest now
                    break
    return found


def _told(
    method: str,
    shapes: dict[str, Any],
    call: int,
    where: str,
    before: Array,
    now: Array,
    element: tuple[int, ...],
    note: str = "",
) -> ResultDifference:
    return ResultDifference(
        method, shapes, where, call, element, before[element].item(), now[element].item(), note
    )


def first_difference(before: Array, now: Array) -> tuple[int, ...] | None:
    """The first element whose bits differ. None: no element."""
    if before.shape != now.shape:
        return (0,) * before.ndim
    bits = [np.ascontiguousarray(x).reshape(-1, 1).view(np.uint8) for x in (before, now)]
    differs = (bits[0] != bits[1]).any(axis=-1)
    if not differs.any():
        return None
    return tuple(int(n) for n in np.unravel_index(int(differs.argmax()), before.shape))


def _shapes(method: Method) -> dict[str, Any]:
    live = method.live_shapes
    return {info.name: live[info.name] for info in method.inputs if info.is_tensor}
