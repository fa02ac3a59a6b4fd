"""Compare whole methods with ExecuTorch's own CPU runtime: several live shapes, state over several calls.

The methods take turns, and nothing is reset between their calls. So a method also reads what another has left
in a state that they share.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from pteron.api.method import Method
from pteron.api.program import Program
from pteron.errors import InputError
from pteron.tools.inspect.inspect import sample_ranges
from pteron.tools.verify.comparison import ONE_STEP
from pteron.tools.verify.executorch_runtime import NAME, ExecutorchRuntime, MethodCall, as_input
from pteron.tools.verify.references import NoReference
from pteron.tools.verify.samples import random_inputs, sizes_to_try
from pteron.tools.verify.verify_report import NodeResult
from pteron.tools.verify.walk import originals
from pteron.tools.verify.whole_outputs import compare_outputs, random_values

# Errors add up. A value between two codes may become either, and everything after it differs.
SLACK, SLACK_WITH_CODES = 10, 1000


def compare_methods(
    program: Program, names: Sequence[str], runtime: ExecutorchRuntime, seed: int
) -> list[NodeResult]:
    """The results of all outputs of all calls. Raises NoReference if ExecuTorch cannot run the program."""
    _check_backends(program, runtime)
    methods = [program.method(name) for name in names]
    _check_determinism(methods)
    for method in methods:
        method.reset()
    turns = zip_longest(*(_Caller(method, seed).calls() for method in methods))
    done = [call for turn in turns for call in turn if call is not None]
    for method in methods:
        method.reset()
    wanted = runtime.run(
        bytes(program.file.contents), [call.for_reference() for call in done], _data(program)
    )
    return [result for call, want in zip(done, wanted, strict=True) for result in call.compared(want)]


def _check_determinism(methods: Sequence[Method]) -> None:
    """Raise NoReference if a later call reads what an earlier one has drawn."""
    for method in methods:
        if not random_values(method.graph).isdisjoint(state.id for state in method.graph.states):
            raise NoReference(f"{method.name} keeps random numbers in its state")


def slack_of(method: Method) -> int:
    """The allowed error of a whole method, as a multiple of that of a node."""
    names = (original.name for node in method.graph.nodes for original in originals(node))
    has_codes = any(code in name for name in names for code in ONE_STEP)
    return SLACK_WITH_CODES if has_codes else SLACK


def _check_backends(program: Program, runtime: ExecutorchRuntime) -> None:
    plans = program.file.program.execution_plan
    for backend in sorted({delegate.id for plan in plans for delegate in plan.delegates}):
        if backend not in runtime.backends:
            raise NoReference(f"ExecuTorch's CPU runtime has no {backend}")


def _data(program: Program) -> str | None:
    """The path of the `.ptd` file."""
    names = program.file.data_names
    if not names:
        return None
    if len(names) > 1 or not Path(names[0]).is_file():
        raise NoReference("ExecuTorch reads the weights of a program from one file")
    return names[0]


class _Caller:
    """Calls a method at growing live sizes. A position advances by the size of the call before."""

    def __init__(self, method: Method, seed: int) -> None:
        self._method = method
        self._seed = seed
        ranges = sample_ranges(method.graph)
        self._positions = {info.name for info in method.inputs if ranges.get(info.name) == (0, 0)}

    def calls(self) -> Iterator[_DoneCall]:
        position = 0
        for number, size in enumerate(reversed(sizes_to_try(self._method))):
            for start in dict.fromkeys((position, 0)):
                given = self._inputs(size, self._seed + number, start)
                try:
                    made = self._method.execute(given)
                except InputError:
                    continue
                yield _DoneCall(self._method, number, given, made)
                position = start + (size or 1)
                break

    def _inputs(self, size: int | None, seed: int, position: int) -> list[Any]:
        inputs = random_inputs(self._method, size, seed)
        return [
            given + position if info.name in self._positions else given
            for info, given in zip(self._method.inputs, inputs, strict=True)
        ]


class _DoneCall:
    def __init__(self, method: Method, number: int, given: Sequence[Any], made: Sequence[Any]) -> None:
        self._method = method
        self._number = number
        self._given = given
        self._made = made

    def for_reference(self) -> MethodCall:
        inputs = [
            as_input(np.asarray(given), info.dtype) if info.is_tensor else given
            for info, given in zip(self._method.inputs, self._given, strict=True)
        ]
        return self._method.name, inputs

    def compared(self, wanted: Sequence[Any]) -> Iterator[NodeResult]:
        return compare_outputs(
            self._method,
            self._made,
            wanted,
            NAME,
            call=f" of call {self._number}",
            reads=tuple(np.shape(given) for given in self._given),
            slack=slack_of(self._method),
        )
