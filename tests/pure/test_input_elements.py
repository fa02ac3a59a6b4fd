"""Elements of inputs that become integers, through views of the inputs."""

from typing import Any

import numpy as np
import pytest

from pteron.compiler.ir.values import Element, Graph, Tensor
from pteron.compiler.plan.input_uses import input_elements
from pteron.engine.arrays import numpy_arrays
from pteron.errors import InputError, UnsupportedError
from tests.support.sketch import Sketch, live

LARGEST = (4, 6)


def graph_of(shape: tuple[Any, ...], dim: int, index: int, is_dynamic: bool = True) -> Graph:
    """A program that reads an element of a view. -1 in the shape is the size that is left."""
    s = Sketch()
    x = s.input(*LARGEST)
    if not is_dynamic:
        port = s.graph.inputs[0]
        s.graph.inputs[0] = type(port)(port.name, port.value, port.host_type, False)
    largest = np.empty(LARGEST).reshape(shape).shape
    view = s.add("aten.view_copy.default", x, shape, shape=largest)
    s.graph.elements.append(Element(s.graph.symint("n"), view, dim, index))
    return s.finish(view)


@pytest.mark.parametrize(
    ("shape", "dim", "index"),
    [
        ((1, -1, 1), 1, 5),
        ((1, -1, 1), 1, -1),
        ((-1,), 0, -2),
        ((-1, 2), 1, 1),
        ((-1, 2), 0, 0),
        ((-1, 1, 2), 1, 0),
        ((-1, 2), -1, 3),
    ],
)
def test_an_element_of_a_view_is_the_same_at_all_live_shapes(shape: Any, dim: int, index: int) -> None:
    [element] = input_elements(live(graph_of(shape, dim, index)))
    for sizes in (LARGEST, (2, 5), (3, 2), (1, 6)):
        x = np.arange(np.prod(sizes)).reshape(sizes)
        if x.size % 2 and 2 in shape:
            continue
        viewed = x.reshape(shape)
        place = [0] * viewed.ndim
        place[dim] = index
        wanted = viewed.reshape(-1)[index] if dim == -1 else viewed[tuple(place)]
        assert numpy_arrays.read_element(element, x) == wanted


@pytest.mark.parametrize(("shape", "dim", "index"), [((2, -1), 0, 1), ((-1, 2), 0, 1), ((-1, 3), 1, -1)])
def test_an_element_that_moves_with_the_live_shape_is_refused(shape: Any, dim: int, index: int) -> None:
    with pytest.raises(
        UnsupportedError, match=f"element {index} of dimension {dim} of .* depends on the live"
    ):
        input_elements(live(graph_of(shape, dim, index)))
    [element] = input_elements(live(graph_of(shape, dim, index, is_dynamic=False)))
    x = np.arange(24).reshape(LARGEST)
    place = [0, 0]
    place[dim] = index
    assert numpy_arrays.read_element(element, x) == x.reshape(shape)[tuple(place)]


def test_an_element_that_the_gpu_computes_is_refused() -> None:
    s = Sketch()
    computed = s.add("aten.neg.default", s.input(4), shape=(4,))
    s.graph.elements.append(Element(s.graph.symint("n"), computed, 0, 1))
    with pytest.raises(UnsupportedError, match="as an integer, but the GPU computes it"):
        input_elements(live(s.finish(computed)))


@pytest.mark.parametrize(("dim", "index"), [(0, 3), (1, 5), (-1, 24), (-1, -25)])
def test_an_element_beyond_the_live_shape_is_refused(dim: int, index: int) -> None:
    element = Element(Graph("g").symint("n"), Tensor(0, None, LARGEST, "x"), dim, index)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"is read as an integer, but the input has shape \(2, 5\)"):
        numpy_arrays.read_element(element, np.zeros((2, 5), np.int32))
