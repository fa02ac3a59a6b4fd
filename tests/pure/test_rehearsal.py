"""Small sizes are planned at load: a first call at one of them evaluates no rule."""

from __future__ import annotations

import pytest

from pteron.errors import InputError
from pteron.ir.values import Graph, Tensor
from pteron.plan.dynamic import dynamic_dims
from pteron.plan.rehearsal import REHEARSED_NODES, rehearse
from pteron.plan.sweep import LiveGraph
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
    rehearse(swept, dynamic_dims(graph, swept))
    return swept


def test_a_first_call_at_a_small_size_evaluates_no_rule() -> None:
    graph, x, y = chain(1, 100)
    swept = rehearsed(graph)
    assert shape_of(swept, y) == (100,), "the load leaves the largest shape"
    assert not swept.stale_nodes
    before = swept.visits
    for size in (7, 1, 99, 64, 33):
        swept.resize({x.id: (size,)})
        assert shape_of(swept, y) == (size,)
    assert swept.visits == before


def test_a_larger_program_is_planned_at_fewer_sizes() -> None:
    graph, x, _ = chain(5, 1000)
    swept = rehearsed(graph)
    before = swept.visits
    swept.resize({x.id: (REHEARSED_NODES // 5,)})
    assert swept.visits == before
    swept.resize({x.id: (REHEARSED_NODES // 5 + 1,)})
    assert swept.visits == before + 5


def test_dimensions_that_vary_independently_are_not_rehearsed() -> None:
    graph, _, _ = chain(1, 100, 90)
    swept = live(graph)
    dims = dynamic_dims(graph, swept)
    before = swept.visits
    rehearse(swept, dims)
    assert swept.visits == before


def test_sizes_that_the_program_refuses_are_left_out() -> None:
    s = Sketch()
    x = s.input(64, 8)
    y = s.add("aten.glu.default", x, 0, shape=(32, 8))
    swept = live(s.finish(y))
    rehearse(swept, {x.id: (0,)})
    before = swept.visits
    swept.resize({x.id: (6, 8)})
    assert (shape_of(swept, y), swept.visits) == ((3, 8), before)
    with pytest.raises(InputError, match="must be even"):
        swept.resize({x.id: (7, 8)})
