"""The memory plan: aliases share bytes, and only values with disjoint lifetimes share a buffer."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pteron.compiler.ir.values import Graph
from pteron.compiler.plan.memory import GRANULE, Layout, aligned, lifetimes, plan_memory
from tests.support.sketch import Sketch


def chain(length: int) -> Graph:
    s = Sketch()
    x = s.input(100)
    for _ in range(length):
        x = s.add("aten.tanh.default", x, shape=(100,))
    return s.finish(x)


def test_a_chain_of_any_length_needs_two_buffers() -> None:
    graph = chain(20)
    assert len(plan_memory(graph, Layout.of(graph), ()).buffers) == 2


def test_views_share_bytes_with_their_source() -> None:
    s = Sketch()
    x = s.input(4, 6)
    y = s.add("aten.view_copy.default", x, (24,), shape=(24,))
    z = s.add("aten.unsqueeze_copy.default", y, 0, shape=(1, 24))
    layout = Layout.of(s.finish(z))
    assert layout.storage[z.id] == layout.storage[y.id] == x.id
    assert not layout.copies


def test_a_view_of_a_tensor_written_in_place_is_copied() -> None:
    s = Sketch()
    cache = s.constant(1, 8, 1, 4)
    seen = s.add("aten.view_copy.default", cache, (32,), shape=(32,))
    s.add("update_cache.default", s.input(1, 1, 1, 4), cache, 0, shape=(0,))
    s.graph.states = [cache]
    layout = Layout.of(s.finish(seen))
    assert layout.copies == {0}
    assert layout.storage[seen.id] == seen.id


def test_weights_and_state_take_no_activation_memory() -> None:
    s = Sketch()
    y = s.add("aten.linear.default", s.input(4, 64), s.constant(32, 64), None, shape=(4, 32))
    graph = s.finish(y)
    plan = plan_memory(graph, Layout.of(graph), ())
    assert plan.nbytes == aligned(4 * 64 * 4) + aligned(4 * 32 * 4)


def test_scratch_is_used_only_by_its_node() -> None:
    graph = chain(6)
    plan = plan_memory(graph, Layout.of(graph), [(1, "stats", 400), (4, "stats", 400)])
    assert len(plan.buffers) == 3
    assert plan.placement[1, "stats"] == plan.placement[4, "stats"]


@given(st.data())
def test_values_alive_at_once_never_share_a_buffer(data: st.DataObject) -> None:
    s = Sketch()
    values = [s.input(data.draw(st.integers(1, 99))) for _ in range(data.draw(st.integers(1, 3)))]
    for _ in range(data.draw(st.integers(1, 25))):
        x = data.draw(st.sampled_from(values))
        if data.draw(st.booleans()):
            values.append(s.add("aten.tanh.default", x, shape=x.max_shape))
        else:
            values.append(s.add("aten.unsqueeze_copy.default", x, 0, shape=(1, *x.max_shape)))
        if len(values[-1].max_shape) > 4:
            values.pop()
    graph = s.finish(*data.draw(st.lists(st.sampled_from(values), min_size=1, max_size=3)))
    layout = Layout.of(graph)
    plan = plan_memory(graph, layout, ())
    spans = lifetimes(graph, layout)
    for i, a in enumerate(spans):
        assert plan.buffers[plan.placement[a.storage]] >= a.nbytes
        assert a.nbytes % GRANULE == 0
        for b in spans[i + 1 :]:
            if a.first <= b.last and b.first <= a.last:
                assert plan.placement[a.storage] != plan.placement[b.storage]
