"""What a method says about its inputs: which dimensions are dynamic, and why others are not."""

from __future__ import annotations

import pytest

from pteron.api.method import Method
from pteron.compiler.plan.sweep import plan
from pteron.engine.arrays.numpy_arrays import convert_constant
from pteron.engine.devices.recording import RecordingDevice
from pteron.engine.weight_store import WeightStore
from pteron.errors import InputError
from tests.support.sketch import Sketch


def method_of(sketch: Sketch, *outputs: object) -> Method:
    device = RecordingDevice()
    graph = sketch.finish(*outputs)  # type: ignore[arg-type]
    return Method(plan(graph, device.route_features), device, WeightStore(device, convert_constant))


@pytest.fixture
def method() -> Method:
    """A linear layer: any number of rows, but each of six elements."""
    s = Sketch()
    x, weight = s.input(8, 6), s.constant(4, 6)
    return method_of(s, s.add("aten.linear.default", x, weight, None, shape=(8, 4)))


def test_a_method_shows_its_dynamic_dimensions(method: Method) -> None:
    (x,) = method.inputs
    assert str(x).partition(": ")[2] == "float32[n <= 8, 6] (which sizes vary is a guess)"
    assert repr(method).endswith("-> output0: float32[n, 4]>")


def test_a_static_dimension_is_explained_by_the_node_that_refuses(method: Method) -> None:
    name = method.inputs[0].name
    reason = method.why_static(name, 1)
    assert reason is not None and reason.startswith("aten.linear.default (node 0): ")
    assert method.why_static(name, 0) is None
    assert method.live_shapes[name] == (8, 6)  # asking changes nothing


def test_why_static_refuses_what_is_not_there(method: Method) -> None:
    for name, dim in (("nothing", 0), (method.inputs[0].name, 2), (method.inputs[0].name, -1)):
        with pytest.raises(InputError, match=f"has no input {name} with a dimension {dim}"):
            method.why_static(name, dim)


def test_a_float64_says_in_which_precision_it_is_computed() -> None:
    s = Sketch()
    method = method_of(s, s.add("aten.neg.default", s.input(8, host="float64"), shape=(8,)))
    (x,) = method.inputs
    assert (x.dtype, x.precision) == ("float64", "float32")
    assert "(computed in float32)" in str(x) and "(computed in float32)" in repr(method)
