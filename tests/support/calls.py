"""The loop of every comparison: poison the memory, call, compare, and check that nothing was allocated."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pteron
from pteron.api.method import Method
from pteron.compiler.ir.values import Graph
from pteron.engine.devices.opening import Device
from tests.support.compare import disagreements
from tests.support.memory import Made, poison


@dataclass(frozen=True)
class Call:
    """The inputs of a call, and the outputs that it must give."""

    inputs: Sequence[Any]
    outputs: Sequence[Any]
    what: str = ""


def check_file(
    device: Device,
    program: Any,
    calls: Iterable[Call],
    rtol: float,
    atol: float | None = None,
    *,
    nan: bool = False,
    **options: Any,
) -> Graph:
    """Load a program with these options, check the calls, and return its graph."""
    with pteron.load(program, device=device, **options) as loaded:
        method = loaded.method()
        check_calls(method, calls, rtol, atol, nan=nan)
        return method.graph


def check_calls(
    method: Method, calls: Iterable[Call], rtol: float, atol: float | None = None, *, nan: bool = False
) -> None:
    """Make the calls in order. Each must give its outputs, and none may allocate or compile."""
    made = Made(method)
    for problem in problems_of(method, calls, rtol, atol, nan=nan):
        raise AssertionError(problem)
    made.check_unchanged()


def problems_of(
    method: Method, calls: Iterable[Call], rtol: float, atol: float | None = None, *, nan: bool = False
) -> Iterator[str]:
    """The differences between outputs and expected outputs, on poisoned memory."""
    for number, call in enumerate(calls):
        poison(method)
        outputs = method.execute(call.inputs)
        for problem in disagreements(outputs, call.outputs, rtol, atol, nan):
            yield f"call {number}{call.what and ' '}{call.what}, {problem}"


def eager(module: Callable[..., Any], arguments: Iterable[Sequence[Any]]) -> Iterator[Call]:
    """The calls of a module in torch, in order: a module may keep state between calls."""
    import torch

    for inputs in arguments:
        with torch.no_grad():
            outputs = torch.utils._pytree.tree_leaves(module(*copy.deepcopy(tuple(inputs))))
        yield Call(inputs, outputs, f"at {shapes_of(inputs)}")


def shapes_of(inputs: Iterable[Any]) -> str:
    return " ".join(str(tuple(x.shape)) if hasattr(x, "shape") else repr(x) for x in inputs)
