"""Formulas of sizes: their arithmetic, rules that run on traced numbers, and the sizes of whole graphs."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pteron.compiler.ir.formula import Formula, as_formula
from pteron.compiler.ir.values import Graph
from pteron.compiler.pipeline import lower
from pteron.compiler.plan.dynamic import find_sizes
from pteron.compiler.plan.method_sizes import MethodSizes, method_sizes
from pteron.compiler.plan.traced import Path, Traced
from pteron.pte.file import ProgramFile
from tests.support import DATA
from tests.support.signature import unknown_outputs, wrong_sizes
from tests.support.sketch import Sketch, live

N, M = Formula.name("n"), Formula.name("m")


@pytest.mark.parametrize(
    ("formula", "text"),
    [
        (N * 2 + 1, "2*n + 1"),
        (N - N, "0"),
        (M * N * 64 // (N * 64), "m"),
        ((N * 4 + 6) // 8, "(n + 1)//2"),
        ((N // 2 + 1) // 2, "(n + 2)//4"),
        ((N - 3) // 2 + 1, "(n - 1)//2"),
        ((N * -1) // 4 * -64, "64*((n + 3)//4)"),
        (N * 8 // 4 + N % 2, "3*n - 2*(n//2)"),
        ((N + 1) // M, "(n + 1)//m"),
        (N * -1 + 4, "-n + 4"),
    ],
)
def test_a_formula_has_one_form(formula: Formula, text: str) -> None:
    assert str(formula) == text
    for n, m in ((1, 1), (7, 3), (64, 5)):
        assert formula.value({"n": n, "m": m}) == eval(text, {"n": n, "m": m})


NAMES = st.fixed_dictionaries({"n": st.integers(0, 40), "m": st.integers(1, 9)})
STEPS = st.lists(
    st.tuples(
        st.sampled_from([operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod]),
        st.one_of(st.integers(-6, 6), st.sampled_from(["n", "m"])),
        st.booleans(),
    ),
    max_size=6,
)


def compute(steps: Any, start: Any, numbers: Any) -> Any:
    """Calculate, but never divide by 0."""
    for function, other, swapped in steps:
        right = numbers.get(other, other)
        one, two = (right, start) if swapped else (start, right)
        if function in (operator.floordiv, operator.mod) and two == 0:
            continue
        start = function(one, two)
    return start


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(STEPS, NAMES, NAMES)
def test_traced_numbers_give_formulas_that_hold_on_their_path(steps: Any, here: Any, there: Any) -> None:
    path = Path()
    traced = compute(
        steps, Traced(here["n"], N, path), {k: Traced(here[k], Formula.name(k), path) for k in here}
    )
    formula = as_formula(traced.formula if type(traced) is Traced else traced)
    for names in (here, there):
        if path.holds(names):
            assert formula.value(names) == compute(steps, names["n"], names)
    assert path.holds(here)


@pytest.mark.parametrize(
    "use", [range, float, hash, "abc".__getitem__, lambda n: n / 4, lambda n: 1 << n, lambda n: n * 0.5]
)
def test_a_number_that_is_used_as_such_holds_only_there(use: Callable[[Any], Any]) -> None:
    path = Path()
    n: Any = Traced(2, N, path)
    assert isinstance(n, int) and use(n) == use(2)
    assert path.holds({"n": 2}) and not path.holds({"n": 1})


def test_a_comparison_holds_where_it_gives_the_same_answer() -> None:
    path = Path()
    n: Any = Traced(5, N, path)
    assert max(n, 3) is n and (n if n else 0) is n and n != 7
    assert [k for k in range(10) if path.holds({"n": k})] == [3, 4, 5, 6, 8, 9]


def sizes(graph: Graph) -> MethodSizes:
    planned = live(graph)
    assert not list(wrong_sizes(planned))
    return method_sizes(planned, find_sizes(planned))


def output(graph: Graph) -> list[str]:
    found = sizes(graph)
    return [
        str(size)
        for port in graph.outputs
        if port.value not in inputs_of(graph)
        for size in found.of(port.value)
    ]


def inputs_of(graph: Graph) -> list[Any]:
    return [port.value for port in graph.inputs]


def test_sizes_of_a_graph() -> None:
    s = Sketch()
    x, y = s.input(1, 3, 9), s.input(4, 3, 9)
    added = s.add("aten.add.Tensor", x, y, 1, shape=(4, 3, 9))
    joined = s.add("aten.cat.default", (added, added), 2, shape=(4, 3, 18))
    assert output(s.finish(joined)) == ["n", "m", "2*k"]


def test_an_integer_of_the_call_is_in_formulas() -> None:
    s = Sketch()
    x, n = s.input(8, 4), s.integer()
    assert output(s.finish(x, s.add("sym_numel.default", x), s.add("mul", n, n))) == ["m*n", "n1*n1"]


def test_a_size_that_no_formula_gives_has_none() -> None:
    """From n1 on: no rows, or n - n1."""
    s = Sketch()
    x, n = s.input(8, 4), s.integer()
    assert output(s.finish(s.add("aten.slice_copy.Tensor", x, 0, n, None, 1, shape=(8, 4)))) == ["None", "m"]


@pytest.mark.parametrize("file", sorted(DATA.glob("*.pte")), ids=lambda path: path.stem)
def test_formulas_of_files_are_the_live_shapes(file: Any) -> None:
    with ProgramFile.open(file) as opened:
        for planned in lower(opened).plan().values():
            assert not list(wrong_sizes(planned)) and not unknown_outputs(planned)
