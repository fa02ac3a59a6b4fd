"""The test cases of a bundled program: its own inputs, and the outputs that its author expects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from pteron.api.program import Program
from pteron.compiler.ir.dtypes import HOST_TYPES
from pteron.errors import InputError
from pteron.pte import bundled
from pteron.tools.verify.method_reference import slack_of
from pteron.tools.verify.verify_report import NodeResult
from pteron.tools.verify.whole_outputs import compare_outputs

NAME = "the tests in the file"


def run_tests(program: Program, method: str) -> Iterator[NodeResult]:
    """A result for each output of each test case of a method."""
    for suite in program.file.test_suites:
        if suite.method_name == method:
            for number, case in enumerate(suite.test_cases):
                yield from _run(program, method, number, case)


def _run(program: Program, name: str, number: int, case: bundled.TestCase) -> Iterator[NodeResult]:
    method = program.method(name)
    given = [value_of(value) for value in case.inputs]
    method.reset()
    made = method.execute(given)
    if len(case.expected_outputs) not in (0, len(made)):
        expected = len(case.expected_outputs)
        raise InputError(f"test {number} of '{name}' expects {expected} outputs, the method has {len(made)}")
    if not case.expected_outputs:
        return
    yield from compare_outputs(
        method,
        made,
        [value_of(value) for value in case.expected_outputs],
        NAME,
        call=f" of test {number}",
        reads=tuple(np.shape(x) for x in given),
        slack=slack_of(method),
    )


def value_of(value: bundled.TestValue) -> Any:
    match value.value:
        case bundled.TestTensor() as tensor:
            return _array(tensor)
        case bundled.TestInt(int_val=number):
            return number
        case bundled.TestBool(bool_val=flag):
            return flag
        case bundled.TestDouble(double_val=real):
            return real


def _array(tensor: bundled.TestTensor) -> np.ndarray[Any, Any]:
    kind = HOST_TYPES[tensor.scalar_type][0]
    order = tensor.dim_order or tuple(range(len(tensor.sizes)))
    stored = np.frombuffer(tensor.data, "uint16" if kind == "bfloat16" else kind)
    if kind == "bfloat16":
        stored = (stored.astype(np.uint32) << 16).view(np.float32)
    shaped = stored.reshape([tensor.sizes[d] for d in order])
    return np.ascontiguousarray(shaped.transpose(np.argsort(order)))
