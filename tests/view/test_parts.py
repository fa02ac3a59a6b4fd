"""Sizes and integers, groups by the names of modules, slices and statistics of arrays."""

from __future__ import annotations

import base64

import numpy as np
import pytest

from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ir.values import Constant, Tensor
from pteron.errors import InputError
from pteron.pte.bytesource import ByteSource
from pteron.tools.viewer.node_groups import group_nodes
from pteron.tools.viewer.size_controls import changes_for, find_controls, within_guards
from pteron.tools.viewer.tensor_views import slice_view, statistics
from tests.support.sketch import Sketch, live


def named(sketch: Sketch, name: str, *shape: int) -> Tensor:
    data = ByteSource(bytes(4 * int(np.prod(shape)))).region()
    return sketch.graph.tensor(DType.float32, shape, name, Constant(data, "float32"))


def test_groups_follow_the_names_of_modules() -> None:
    sketch = Sketch()
    x = sketch.input(4, 8)
    for layer in range(2):
        for part in ("up", "down"):
            weight = named(sketch, f"layers.{layer}.mlp.{part}.weight", 8, 8)
            y = sketch.value(4, 8)
            sketch.node("aten.linear.default", (x, weight, None, y))
            x = sketch.value(4, 8)
            sketch.node("aten.relu.default", (y, x))
    grouping = group_nodes(sketch.graph)

    def path(node: int) -> list[str]:
        group, names = grouping.of_node[node], []
        while group is not None:
            names.append(grouping.groups[group].name)
            group = grouping.groups[group].parent
        return names[::-1]

    assert path(0) == path(1) == path(2) == ["layers.0", "mlp"]  # relu lies between two nodes of the module
    assert path(4) == path(6) == ["layers.1", "mlp"]
    assert path(3) == []  # between two layers


def test_a_graph_without_repetition_has_no_groups() -> None:
    sketch = Sketch()
    x = sketch.input(4, 8)
    for name in ("relu", "exp", "sin", "cos", "abs"):
        y = sketch.value(4, 8)
        sketch.node(f"aten.{name}.default", (x, y))
        x = y
    assert group_nodes(sketch.graph).groups == []


def test_a_long_graph_is_divided() -> None:
    """Squares of sizes: no two stretches are equal."""
    sketch = Sketch()
    for length in range(1, 201):
        sketch.node("aten.relu.default", (sketch.input(length * length), sketch.value(length * length)))
    grouping = group_nodes(sketch.graph)
    assert [group.parent for group in grouping.groups] == [None] * 3
    assert max(map(grouping.of_node.count, range(3))) <= 80
    assert None not in grouping.of_node


def test_integers_have_the_range_that_fits() -> None:
    """A position and a length share a cache of 16 rows."""
    sketch = Sketch()
    x = sketch.input(1, 4, 2, 8)
    caches = [sketch.constant(1, 16, 2, 8) for _ in range(2)]
    at = sketch.integer()
    arguments = (x, x, x, *caches, at, None, None, 0.0, True, None)
    y = sketch.add("sdpa_with_kv_cache.default", *arguments, shape=(1, 4, 2, 8))
    swept = live(sketch.finish(y))
    controls = find_controls(swept)
    size, integer = (control.name for control in controls)
    assert (size, integer) == (f"{x.name}[1]", at.name)
    for length, highest in ((4, 12), (1, 15), (3, 13)):
        swept.sweep(changes_for(swept.graph, controls, {size: length}))
        position = within_guards(swept, controls)[1]
        assert (position.low, position.high) == (0, highest)
        swept.sweep(changes_for(swept.graph, controls, {size: length, integer: highest}))
        with pytest.raises(InputError):
            swept.sweep(changes_for(swept.graph, controls, {size: length, integer: highest + 1}))


def plane(array: np.ndarray, axes: list[int] | None, at: list[int] | None) -> np.ndarray:
    found = slice_view(array, axes, at)
    return np.frombuffer(base64.b64decode(found["numbers"]), "<f4").reshape(found["size"])


def test_slices() -> None:
    array = np.arange(2 * 3 * 4 * 5, dtype=np.float32).reshape(2, 3, 4, 5)
    np.testing.assert_array_equal(plane(array, None, None), array[0, 0])
    np.testing.assert_array_equal(plane(array, [1, 3], [1, 0, 2, 0]), array[1, :, 2])
    np.testing.assert_array_equal(plane(array, [3, 0], [0, 2, 1, 0]), array[:, 2, 1].T)
    np.testing.assert_array_equal(plane(array[0, 0, 0], None, None), array[:1, 0, 0])
    np.testing.assert_array_equal(plane(np.float32(7).reshape(()), None, None), [[7]])
    long = np.arange(1000, dtype=np.int32).reshape(1, 1000)
    np.testing.assert_array_equal(plane(long, None, None), long[:, ::4])
    for axes, at in (([0, 0], None), ([0, 4], None), ([0, 1], [0, 0, 9, 0]), ([0], None)):
        with pytest.raises(InputError):
            slice_view(array, axes, at)


def test_statistics_leave_out_what_is_not_finite() -> None:
    found = statistics(np.array([1, 2, 3, 0, np.nan, np.inf, -np.inf], np.float32))
    assert (found["count"], found["nan"], found["infinite"], found["zero"]) == (7, 1, 2, 1)
    assert (found["min"], found["max"], found["mean"]) == (0, 3, 1.5)
    assert sum(found["histogram"]) == 4
    assert statistics(np.full(3, np.nan, np.float32)) == {"count": 3, "nan": 3, "infinite": 0, "zero": 0}
    assert statistics(np.array([True, False]))["mean"] == 0.5
