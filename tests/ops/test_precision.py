"""Kernels that round operands, as `load(precision=)` permits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pteron.compiler.ir.dispatch import GPU, HALF, PRECISIONS
from pteron.compiler.ir.dtypes import DType
from pteron.compiler.plan.routes import ByName
from pteron.compiler.plan.sweep import plan
from pteron.compiler.sketch import Sketch
from pteron.engine.devices.opening import Device
from pteron.tools.verify.single_node import open_graph
from tests.ops.test_affine import coded
from tests.support.memory import poison

MOST, DEPTH, COLUMNS = 70, 96, 70
FORMS: dict[str, dict[str, Any]] = {
    "4 bits, minima": {"bits": 4, "group": 32, "minima": True},
    "6 bits, super-blocks": {"bits": 6, "group": 16},
    "8 bits": {"bits": 8, "group": 32},
}


def rounded(x: Any, block: int) -> Any:
    """Each block of a row as whole numbers from -127 to 127 and a factor."""
    blocks = x.reshape(len(x), -1, block)
    factors = np.abs(blocks).max(axis=-1, keepdims=True) / 127
    return (np.round(blocks / np.maximum(factors, 1e-30)) * factors).reshape(x.shape)


def linear(form: str) -> tuple[Any, Any]:
    """A graph with a linear layer, and its weight."""
    weight = coded(COLUMNS, DEPTH, **FORMS[form])
    sketch = Sketch("linear")
    x, out = sketch.input(MOST, DEPTH), sketch.value(MOST, COLUMNS)
    stored = [
        sketch.constant(*array.shape, dtype=dtype, data=array.tobytes())
        for array, dtype in ((weight.words, DType.int32), (weight.scales, DType.float16))
    ]
    args = [x, *stored, weight.bits, weight.group_size, weight.zero, None, None, out]
    sketch.node("pteron.linear_affine.default", args)
    sketch.finish(out)
    return sketch.graph, weight.dequantize()


@pytest.mark.parametrize("form", FORMS)
def test_int8(device: Device, form: str) -> None:
    """The results are those of the rounded activations."""
    graph, weight = linear(form)
    block = min(32, FORMS[form]["group"])
    check(device, graph, "int8", "int8 tile gemm", lambda x: rounded(x, block) @ weight.T, 1e-5)


def test_float16(device: Device) -> None:
    graph, weight = linear("4 bits, minima")
    check(device, graph, "float16", "float16 small tile gemm", lambda x: x @ weight.T, 2e-3)


def check(device: Device, graph: Any, precision: str, route: str, expected: Any, tolerance: float) -> None:
    """tolerance: of the largest value."""
    features = (GPU, HALF, *PRECISIONS[precision])
    with open_graph(graph, device, features, ByName(route)) as method:
        for rows in (MOST, 9, 33):
            x = np.random.default_rng(rows).standard_normal((rows, DEPTH)).astype(np.float32)
            poison(method)
            with method.prepare(x) as call:
                assert {step.route for step in call.steps()} == {route}
            (y,) = method.execute([x])
            right = expected(x.astype(np.float64))
            assert np.abs(y - right).max() < tolerance * np.abs(right).max()


def test_nothing_is_rounded_unless_it_is_permitted() -> None:
    graph, _ = linear("4 bits, minima")
    names = {route.name for route in plan(graph, (GPU, HALF), ByName()).routes[0]}
    assert names and not any("int8" in name or "float16" in name for name in names)
