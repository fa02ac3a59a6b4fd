"""Small sizes are planned at load: a first call at one of them evaluates no rule."""

from __future__ import annotations

import pytest

from pteron.compiler.ir.sizes import FreeSize, Size
from pteron.compiler.ir.values import Graph, Tensor
from pteron.compiler.plan.dynamic import find_sizes
from pteron.compiler.plan.preplan import PREPLANNED_NODES, preplan
from pteron.compiler.plan.sweep import LiveGraph
from pteron.errors import InputError
from tests.support.sketch import Sketch, live, shape_of


def chain(length: int, *sizes: int) -> tuple[Graph, Tensor, Tensor]:
    """Different elementwise operators, one after the other."""
    s = Sketch()
    x = s.input(*sizes)
    y = x
    for name in ("tanh", "sigmoid", "exp", "abs", "neg")[:length]:
        y = s.add(f"aten.{name}.default", y, shape=sizes)
    return s.finish(y), x, y


def rehearsed(graph: Graph) -> LiveGraph:
    swept = live(graph)
    preplan(swept, find_sizes(swept).inputs)
    return swept


def test_a_first_call_at_a_small_size_evaluates_no_rule() -> None:
    graph, x, y = chain(1, 100)
    swept = live(graph)
    plans = swept.plans.copy()
    preplan(swept, find_sizes(swept).inputs)
    assert shape_of(swept, y) == (100,), "the load leaves the largest shape"
    assert swept.plans == plans
    before = swept.visits
    for size in (7, 1, 99, 64, 33):
        swept.sweep({x.id: (size,)})
        assert shape_of(swept, y) == (size,)
    assert swept.visits == before


def test_a_larger_program_is_planned_at_fewer_sizes() -> None:
    graph, x, _ = chain(5, 1000)
    swept = rehearsed(graph)
    before = swept.visits
    swept.sweep({x.id: (PREPLANNED_NODES // 5,)})
    assert swept.visits == before
    swept.sweep({x.id: (PREPLANNED_NODES // 5 + 1,)})
    assert swept.visits == before + 5


def test_dimensions_that_vary_independently_are_not_rehearsed() -> None:
    graph, _, _ = chain(1, 100, 90)
    swept = live(graph)
    inputs = find_sizes(swept).inputs
    before = swept.visits
    preplan(swept, inputs)
    assert swept.visits == before


def test_sizes_that_the_program_refuses_are_left_out() -> None:
    s = Sketch()
    x = s.input(64, 8)
    y = s.add("aten.glu.default", x, 0, shape=(32, 8))
    swept = live(s.finish(y))
    preplan(swept, {x.id: (Size(FreeSize(range(65))), 8)})
    before = swept.visits
    swept.sweep({x.id: (6, 8)})
    assert (shape_of(swept, y), swept.visits) == ((3, 8), before)
    with pytest.raises(InputError, match="must be even"):
        swept.sweep({x.id: (7, 8)})
