"""The sweep: live shapes and SymInts through a graph, in one pass, all or nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pteron.compiler.ir.live import Live
from pteron.compiler.ir.values import Graph, Tensor, ValueId
from pteron.compiler.lower.instructions import check_order
from pteron.compiler.plan.dynamic import find_sizes
from pteron.compiler.plan.size_errors import explained
from pteron.compiler.plan.sweep import REMEMBERED_PLANS_PER_NODE, LiveGraph
from pteron.errors import FormatError, InputError, PteronError, UnsupportedError
from tests.support.sketch import Sketch, live, shape_of

SIZES = st.lists(st.integers(0, 128), min_size=1, max_size=12)


def residual() -> tuple[Graph, Tensor, Tensor]:
    """x + sigmoid(tanh(x)): the two operands of the sum are at different depths."""
    s = Sketch()
    x = s.input(1, 128, 8)
    a = s.add("aten.tanh.default", x, shape=(1, 128, 8))
    b = s.add("aten.sigmoid.default", a, shape=(1, 128, 8))
    y = s.add("aten.add.Tensor", x, b, 1, shape=(1, 128, 8))
    return s.finish(y), x, y


@given(SIZES)
def test_a_residual_has_the_live_shape_at_every_size(sizes: list[int]) -> None:
    graph, x, y = residual()
    swept = live(graph)
    for size in sizes:
        swept.sweep({x.id: (1, size, 8)})
        assert shape_of(swept, y) == (1, size, 8)


def changed(swept: LiveGraph, changes: dict[ValueId, Live]) -> tuple[list[int], list[ValueId]]:
    """The nodes that have another plan after a sweep, and the SymInts that have another value."""
    plans, values, version = swept.plans.copy(), swept.current.copy(), swept.version
    swept.sweep(changes)
    nodes = [n for n, (old, new) in enumerate(zip(plans, swept.plans, strict=True)) if old is not new]
    moved = [n for n, (old, new) in enumerate(zip(values, swept.current, strict=True)) if old != new]
    assert (swept.version != version) == bool(nodes or moved)
    return nodes, [ValueId(n) for n in moved if isinstance(swept.current[n], int)]


def test_only_what_changed_is_planned_again() -> None:
    s = Sketch()
    x, z = s.input(128), s.input(64)
    a = s.add("aten.tanh.default", x, shape=(128,))
    b = s.add("aten.tanh.default", z, shape=(64,))
    swept = live(s.finish(a, b))
    assert changed(swept, {x.id: (7,), z.id: (64,)}) == ([0], [])
    assert changed(swept, {x.id: (7,), z.id: (9,)}) == ([1], [])
    assert changed(swept, {x.id: (7,), z.id: (9,)}) == ([], [])


def test_a_shape_seen_before_evaluates_no_rule() -> None:
    graph, x, _ = residual()
    swept = live(graph)
    for size in (128, 64, 1):
        swept.sweep({x.id: (1, size, 8)})
    visits = swept.visits
    for size in (64, 128, 1, 64):
        swept.sweep({x.id: (1, size, 8)})
    assert swept.visits == visits


def test_nodes_with_the_same_signature_are_planned_once() -> None:
    s = Sketch()
    x, tables = s.input(128, 8), [s.constant(n, 8) for n in (50, 50, 60)]
    positions = [s.integer() for _ in tables]
    rows = [
        s.add("aten.slice_copy.Tensor", table, 0, position, None, 1, shape=table.max_shape)
        for table, position in zip(tables, positions, strict=True)
    ]
    ys = [s.add("aten.tanh.default", x, shape=(128, 8)) for _ in range(3)]
    zs = [s.add("aten.sigmoid.default", y, shape=(128, 8)) for y in ys]
    swept = live(s.finish(*rows, *zs))
    before = swept.visits
    at = dict(zip([p.id for p in positions], (3, 3, 3), strict=True))
    assert len(changed(swept, {x.id: (7, 8), **at})[0]) == 9
    assert swept.visits == before + 4, "one tanh, one sigmoid, and the slices of each size of table"
    assert [shape_of(swept, z) for z in zs] == [(7, 8)] * 3
    assert [shape_of(swept, row) for row in rows] == [(47, 8), (47, 8), (57, 8)]
    swept.sweep({x.id: (7, 8), **at, positions[1].id: 9})
    assert [shape_of(swept, row) for row in rows] == [(47, 8), (41, 8), (57, 8)]


def test_a_shared_plan_checks_the_integers_of_its_own_node() -> None:
    s = Sketch()
    x = s.input(1, 4, 2, 8)
    caches = [s.constant(1, 16, 2, 8) for _ in range(4)]
    positions = [s.integer() for _ in range(2)]
    outs = [
        s.add(
            "sdpa_with_kv_cache.default", x, x, x, *pair, at, None, None, 0.0, True, None, shape=(1, 4, 2, 8)
        )
        for pair, at in zip((caches[:2], caches[2:]), positions, strict=True)
    ]
    swept = live(s.finish(*outs))
    first, second = (p.id for p in positions)
    swept.sweep({x.id: (1, 3, 2, 8), first: 13, second: 0})
    with pytest.raises(InputError, match="14"):
        swept.sweep({x.id: (1, 3, 2, 8), first: 0, second: 14})
    swept.sweep({x.id: (1, 3, 2, 8), first: 0, second: 13})


def test_one_value_used_twice_differs_from_two_values() -> None:
    s = Sketch()
    x, y = s.input(8), s.input(8)
    twice = s.add("aten.add.Tensor", x, x, 1, shape=(8,))
    sums = s.add("aten.add.Tensor", x, y, 1, shape=(8,))
    scaled = s.add("aten.add.Tensor", x, y, 2, shape=(8,))
    swept = live(s.finish(twice, sums, scaled))
    swept.sweep({x.id: (5,), y.id: (1,)})
    plans = swept.plans
    assert [shape_of(swept, v) for v in (twice, sums, scaled)] == [(5,)] * 3
    assert plans[1] is not None and plans[2] is not None
    assert plans[1].dispatches[0].params != plans[2].dispatches[0].params


def test_the_number_of_cached_plans_is_limited() -> None:
    graph, x, _ = residual()
    swept = live(graph)
    for size in range(1, 129):
        swept.sweep({x.id: (1, size, 8)})
    assert max(len(memo) for memo in swept._memo) <= REMEMBERED_PLANS_PER_NODE


def test_an_unchanged_shape_plans_nothing() -> None:
    graph, x, _ = residual()
    swept = live(graph)
    visits = swept.visits
    assert changed(swept, {x.id: (1, 128, 8)}) == ([], [])
    assert swept.visits == visits


def test_a_refused_call_changes_nothing() -> None:
    s = Sketch()
    a, b = s.input(1, 64), s.input(1, 64)
    c = s.add("aten.tanh.default", a, shape=(1, 64))
    d = s.add("aten.mul.Tensor", c, b, shape=(1, 64))
    swept = live(s.finish(d))
    swept.sweep({a.id: (1, 5), b.id: (1, 5)})
    before, plans = list(swept.current), list(swept.plans)
    with pytest.raises(
        InputError, match=r"aten\.mul\.Tensor \(node 1\): shapes \(1, 7\) and \(1, 9\) do not"
    ):
        swept.sweep({a.id: (1, 7), b.id: (1, 9)})
    assert swept.current == before
    assert swept.plans == plans
    swept.sweep({a.id: (1, 9), b.id: (1, 9)})
    assert shape_of(swept, d) == (1, 9)


@given(st.integers(1, 128))
def test_sizes_become_symints_and_symints_become_sizes(size: int) -> None:
    """sym_size of an intermediate, arithmetic on it, and a view by the result."""
    s = Sketch()
    x = s.input(1, 128, 6)
    a = s.add("aten.tanh.default", x, shape=(1, 128, 6))
    n = s.add("sym_size.int", a, 1)
    pairs = s.add("mul", n, 3)
    y = s.add("aten.view_copy.default", a, (pairs, 2), shape=(384, 2))
    swept = live(s.finish(y))
    swept.sweep({x.id: (1, size, 6)})
    assert swept.current[pairs.id] == 3 * size
    assert shape_of(swept, y) == (3 * size, 2)


@pytest.mark.parametrize(
    ("name", "a", "b", "result"),
    [
        ("add", 7, 3, 10),
        ("sub", 7, 9, -2),
        ("mul", 7, 3, 21),
        ("floordiv", -7, 2, -4),
        ("mod", -7, 3, 2),
        ("sym_max", 7, 3, 7),
        ("sym_min", 7, 3, 3),
        ("eq", 7, 7, 1),
        ("lt", 7, 3, 0),
        ("le", 3, 3, 1),
        ("gt", 7, 3, 1),
        ("ge", 2, 3, 0),
    ],
)
def test_integer_arithmetic(name: str, a: int, b: int, result: int) -> None:
    s = Sketch()
    x, y = s.integer(), s.integer()
    z = s.add(name, x, y)
    swept = live(s.finish(z))
    swept.sweep({x.id: a, y.id: b})
    assert swept.current[z.id] == result


def test_division_by_a_live_zero_is_an_error_and_not_at_load() -> None:
    s = Sketch()
    x = s.integer()
    z = s.add("floordiv", 12, x)
    swept = live(s.finish(z))
    with pytest.raises(InputError, match=r"floordiv \(node 0\): division by zero"):
        swept.sweep({x.id: 0})
    swept.sweep({x.id: 5})
    assert swept.current[z.id] == 2


def cache_program() -> tuple[Graph, Tensor, object]:
    s = Sketch()
    k = s.input(1, 16, 2, 8)
    cache = s.constant(1, 64, 2, 8)
    position = s.integer()
    s.add("update_cache.default", k, cache, position, shape=(0,))
    s.graph.states = [cache]
    return s.finish(k), k, position


def test_an_integer_beyond_32_bits_is_refused_where_a_kernel_reads_it() -> None:
    graph, k, position = cache_program()
    swept = live(graph)
    swept.sweep({k.id: (1, 1, 2, 8), position.id: 3})  # type: ignore[attr-defined]
    for wide in (2**31, -(2**31) - 1, 2**63):
        with pytest.raises(InputError, match="32-bit integer"):
            swept.sweep({position.id: wide})  # type: ignore[attr-defined]
        assert swept.current[position.id] == 3  # type: ignore[attr-defined]


def test_a_position_moves_without_a_new_plan() -> None:
    graph, k, position = cache_program()
    swept = live(graph)
    swept.sweep({k.id: (1, 1, 2, 8), position.id: 0})  # type: ignore[attr-defined]
    visits = swept.visits
    for at in range(1, 64):
        assert changed(swept, {position.id: at}) == ([], [position.id])  # type: ignore[attr-defined]
        assert swept.current[position.id] == at  # type: ignore[attr-defined]
    assert swept.visits == visits


def test_a_position_beyond_the_cache_is_refused_without_a_new_plan() -> None:
    graph, k, position = cache_program()
    swept = live(graph)
    swept.sweep({k.id: (1, 4, 2, 8), position.id: 60})  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="position 61 plus 4 new tokens does not fit the cache of 64"):
        swept.sweep({position.id: 61})  # type: ignore[attr-defined]
    assert swept.current[position.id] == 60  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="position -1"):
        swept.sweep({position.id: -1})  # type: ignore[attr-defined]


def test_the_range_of_a_position_follows_the_plans_of_all_its_nodes() -> None:
    s = Sketch()
    keys = s.input(1, 16, 2, 8), s.input(1, 16, 2, 8)
    caches = s.constant(1, 64, 2, 8), s.constant(1, 32, 2, 8)
    position = s.integer()
    for k, cache in zip(keys, caches, strict=True):
        s.add("update_cache.default", k, cache, position, shape=(0,))
    s.graph.states = list(caches)
    swept = live(s.finish(*keys))
    first, second = (k.id for k in keys)
    swept.sweep({first: (1, 1, 2, 8), second: (1, 1, 2, 8), position.id: 0})
    swept.sweep({position.id: 31})
    swept.sweep({second: (1, 4, 2, 8), position.id: 28})
    with pytest.raises(InputError, match="position 29 plus 4 new tokens"):
        swept.sweep({position.id: 29})
    with pytest.raises(InputError, match="position 28 plus 5 new tokens"):
        swept.sweep({second: (1, 5, 2, 8)})
    with pytest.raises(InputError, match="position 29 plus 4 new tokens"):
        swept.sweep({position.id: 29})
    swept.sweep({second: (1, 1, 2, 8), position.id: 31})
    with pytest.raises(InputError, match=r"node 1.*position 32 plus 1 new tokens .* cache of 32"):
        swept.sweep({position.id: 32})


def test_an_output_beyond_its_maximum_is_refused() -> None:
    s = Sketch()
    n = s.integer()
    y = s.add("aten.full.default", (n, 4), 1.0, None, None, None, None, shape=(8, 4))
    swept = live(s.finish(y))
    swept.sweep({n.id: 8})
    with pytest.raises(
        InputError, match=r"its output would be \(9, 4\), which does not fit its maximum \(8, 4\)"
    ):
        swept.sweep({n.id: 9})
    assert shape_of(swept, y) == (8, 4)


def test_program_order_must_be_a_topological_order() -> None:
    s = Sketch()
    x, late = s.input(4), s.value(4)
    y = s.add("aten.add.Tensor", x, late, 1, shape=(4,))
    s.node("aten.tanh.default", [x, late], "sketch")
    with pytest.raises(FormatError, match=r"aten\.add\.Tensor \(node 0\) reads v1.* not a topological order"):
        check_order(s.finish(y))


def test_a_rule_that_refuses_the_largest_shape_names_the_node() -> None:
    s = Sketch()
    y = s.add("aten.mm.default", s.input(4, 5), s.input(6, 7), shape=(4, 7))
    with pytest.raises(
        UnsupportedError, match=r"aten\.mm\.default.*inner dimensions differ: \(4, 5\) @ \(6, 7\)"
    ):
        live(s.finish(y))


def test_reading_something_else_as_a_symint_says_so() -> None:
    graph, x, _ = residual()
    with pytest.raises(PteronError, match=r"v0:float32\[1, 128, 8\] is not a SymInt"):
        live(graph).integer(x)


def test_dynamic_dimensions_are_found() -> None:
    s = Sketch()
    x, w = s.input(1, 128, 64), s.constant(32, 64)
    y = s.add("aten.linear.default", x, w, None, shape=(1, 128, 32))
    graph = s.finish(y)
    swept = live(graph)
    before = list(swept.current)
    dims = find_sizes(swept).dims
    assert dims[x.id] == (1,)
    assert dims[y.id] == (1,)
    assert swept.current == before


def test_dimensions_that_only_vary_together_are_found() -> None:
    s = Sketch()
    a, b = s.input(9, 8), s.input(9, 8)
    y = s.add("aten.mul.Tensor", a, b, shape=(9, 8))
    dims = find_sizes(live(s.finish(y))).dims
    assert 0 in dims[a.id]
    assert 0 in dims[b.id]


def test_a_size_that_the_exporter_fixed_is_explained() -> None:
    """A size list has the largest size. The error names the input, the dimension, the node and the cause."""
    s = Sketch()
    x = s.input(6, 8)
    y = s.add("aten.relu.default", x, shape=(6, 8))
    z = s.add("aten.view_copy.default", y, (6, 2, 4), shape=(6, 2, 4))
    graph = live(s.finish(z))
    changes = {x.id: (5, 8)}
    with pytest.raises(InputError) as refused:
        graph.sweep(changes)
    said = str(explained(refused.value, graph, changes))
    assert said.startswith(f"{x.name}: dimension 0 is 5, but the program runs only at 6.")
    assert "aten.view_copy.default (node 1): 40 elements cannot be viewed as (6, 2, 4)" in said
    assert "The exporter made this size a constant" in said and "dynamic_shapes" in said


def test_an_ordinary_refusal_is_not_explained_by_the_exporter() -> None:
    s = Sketch()
    x = s.input(6, 8)
    y = s.add("aten.view_copy.default", x, (-1, 16), shape=(3, 16))
    graph = live(s.finish(y))
    changes = {x.id: (5, 8)}
    with pytest.raises(InputError, match=r"^aten.view_copy.default") as refused:
        graph.sweep(changes)
    assert str(explained(refused.value, graph, changes)) == str(refused.value)


def test_a_size_that_weights_have_cannot_be_exported_otherwise() -> None:
    s = Sketch()
    x = s.input(6, 64)
    y = s.add("aten.linear.default", x, s.constant(8, 64), None, shape=(6, 8))
    graph = live(s.finish(y))
    changes = {x.id: (6, 63)}
    with pytest.raises(InputError) as refused:
        graph.sweep(changes)
    said = str(explained(refused.value, graph, changes))
    assert said.startswith(
        f"{x.name}: dimension 1 is 63, but the program runs only at 64. The first node that"
    )
    assert said.endswith("Its weights have the size 64, so no export can change it")
    assert "aten.linear.default (node 0)" in said and "dynamic_shapes" not in said


def test_inputs_whose_sizes_must_be_equal_are_named() -> None:
    """Not the tensors inside the program that do not fit each other."""
    s = Sketch()
    ids, mask = s.input(16), s.input(16)
    seen = s.add("aten.view_copy.default", mask, (1, -1), shape=(1, 16))
    column = s.add("aten.view_copy.default", ids, (1, -1), shape=(1, 16))
    y = s.add("aten.mul.Tensor", column, seen, shape=(1, 16))
    graph = live(s.finish(y))
    for sizes in ((5, 7), (16, 7), (5, 16)):
        changes: dict[ValueId, Live] = {ids.id: (sizes[0],), mask.id: (sizes[1],)}
        with pytest.raises(InputError) as refused:
            graph.sweep(changes)
        said = str(explained(refused.value, graph, changes))
        told = f"dimension 0 of {ids.name} is {sizes[0]}, but dimension 0 of {mask.name} is {sizes[1]}. "
        assert said.startswith(f"{told}The program needs the same size in both.")
        assert "aten.mul.Tensor" in said


def test_a_norm_of_no_rows_has_the_route_of_other_calls() -> None:
    from pteron.compiler.ir.dispatch import GPU

    s = Sketch()
    x, weight = s.input(16, 64), s.constant(64)
    outs = (s.value(16, 64), s.value(16, 1), s.value(16, 1))
    s.node("aten.native_layer_norm.default", [x, (64,), weight, weight, 1e-5, outs])
    graph = live(s.finish(outs[0]), features={GPU})
    graph.sweep({x.id: (0, 64)})
    assert graph.plans[0] is not None
    assert graph.plans[0].route in [route.name for route in graph.routes[0]]
