"""Which 64-bit integers get one word, and which keep two."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ir.integers import INT64, Interval, fits
from pteron.compiler.ir.values import Graph, Tensor
from pteron.compiler.lower.narrowing import narrow_integers
from pteron.compiler.ops import registered
from pteron.compiler.ops.integer_expressions import in_two_words, interval
from tests.support.sketch import Sketch

LONG = DType.int64


class Integers(Sketch):
    """A graph of int64 tensors with four elements."""

    def long(self, name: str, *args: Any, shape: Sequence[int] = (4,), dtype: DType = LONG) -> Any:
        return self.add(name, *args, shape=tuple(shape), dtype=dtype)

    def numbers(self, *numbers: int) -> Tensor:
        return self.constant(len(numbers), dtype=LONG, data=struct.pack(f"<{len(numbers)}q", *numbers))

    def x(self) -> Tensor:
        return self.input(4, dtype=LONG)


def wide(graph: Graph) -> set[str]:
    """The names of the tensors with two words."""
    assert narrow_integers(graph) == []
    return {tensor.name for tensor in graph.tensors() if tensor.dtype is LONG}


def looked_up(s: Integers, index: Tensor) -> Tensor:
    table = s.constant(9, 3)
    return s.add("aten.embedding.default", table, index, -1, False, False, shape=(4, 3))


def as_index(s: Integers) -> list[Tensor]:
    return [looked_up(s, s.x())]


def index_arithmetic(s: Integers) -> list[Tensor]:
    """A sum of indices depends on low words only, but the input may have any value."""
    tokens = s.long("aten.arange.default", 4, *[None] * 4)
    moved = s.long("aten.add.Scalar", tokens, 5, 1)
    doubled = s.long("aten.mul.Scalar", moved, 2)
    return [looked_up(s, doubled)]


def index_and_mask(s: Integers) -> list[Tensor]:
    """A token that is used as an index fits, so a comparison with it is one of words."""
    tokens = s.x()
    return [looked_up(s, tokens), s.long("aten.ne.Scalar", tokens, 0, dtype=DType.bool)]


def remainder(s: Integers) -> list[Tensor]:
    return [s.long("aten.remainder.Scalar", s.x(), 7)]


def masked(s: Integers) -> list[Tensor]:
    product = s.long("aten.mul.Tensor", s.x(), s.numbers(1, 2, 3, 4))
    return [s.long("aten.bitwise_and.Scalar", product, 255)]


def product_as_int32(s: Integers) -> list[Tensor]:
    words = s.numbers(2**31 - 1, 3, 4, 5)
    product = s.long("aten.mul.Tensor", words, words)
    return [s.long("pteron.cast", product, dtype=DType.int32)]


def compared(s: Integers) -> list[Tensor]:
    words = s.numbers(2**31 - 1, 3, 4, 5)
    product = s.long("aten.mul.Tensor", words, words)
    return [s.long("aten.gt.Scalar", product, 9, dtype=DType.bool)]


def small_sum(s: Integers) -> list[Tensor]:
    flags = s.input(4, dtype=DType.bool)
    return [s.long("aten.sum.default", flags, None, shape=())]


def sum_of_inputs(s: Integers) -> list[Tensor]:
    return [s.long("aten.sum.default", s.x(), None, shape=())]


def clamped(s: Integers) -> list[Tensor]:
    return [s.long("aten.clamp.default", s.x(), 0, 9)]


def large_constant(s: Integers) -> list[Tensor]:
    return [s.long("aten.view_copy.default", s.numbers(2**40, 1, 2, 3), (4,))]


def from_floats(s: Integers) -> list[Tensor]:
    """A float that becomes an index fits. The low word of another float is that of two words."""
    place = s.long("pteron.cast", s.input(4))
    other = s.long("pteron.cast", s.input(4))
    return [looked_up(s, place), s.long("aten.bitwise_and.Scalar", other, 3)]


# The nodes of a program, and the names of its tensors with two words: v0 is the first value.
PROGRAMS: list[tuple[Callable[[Integers], list[Tensor]], set[str]]] = [
    (as_index, set()),
    (index_arithmetic, set()),
    (index_and_mask, set()),
    (remainder, {"v0"}),
    (masked, {"v0"}),
    (product_as_int32, set()),
    (compared, {"v1"}),
    (small_sum, set()),
    (sum_of_inputs, {"v0", "v1"}),
    (clamped, {"v0"}),
    (large_constant, {"c0", "v1"}),
    (from_floats, {"v3"}),
]


@pytest.mark.parametrize(("make", "expected"), PROGRAMS, ids=lambda value: getattr(value, "__name__", ""))
def test_two_words_are_used_where_one_may_not_be_enough(
    make: Callable[[Integers], list[Tensor]], expected: set[str]
) -> None:
    sketch = Integers()
    graph = sketch.finish(*make(sketch))
    assert wide(graph) == expected


def test_state_that_grows_has_two_words() -> None:
    for name, expected in (("aten.add.Scalar", True), ("aten.bitwise_and.Scalar", False)):
        s = Integers()
        state = s.numbers(0, 0, 0, 0)
        s.graph.states = [state]
        new = s.long(name, state, *((1, 1) if expected else (1,)))
        s.node("pteron.write_back", [new, state, None])
        assert bool(wide(s.finish(s.long("pteron.copy", state)))) == expected


def test_an_operator_without_two_words_is_refused_by_its_name() -> None:
    s = Integers()
    product = s.long("aten.mul.Tensor", *[s.x()] * 2)
    out = s.add(
        "aten.allclose.default", product, product, 1e-5, 1e-8, False, False, shape=(), dtype=DType.bool
    )
    problems = narrow_integers(s.finish(out))
    assert [problem.what for problem in problems] == ["aten.allclose.default"]
    assert "v1 may have integers beyond 32 bits" in problems[0].why


def test_a_product_of_matrices_that_may_not_fit_is_refused() -> None:
    for dtype, expected in ((DType.int64, ["aten.mm.default"]), (DType.bool, [])):
        s = Integers()
        a, b = (
            s.input(4, 4, dtype=dtype, host="int64" if dtype is DType.int64 else "bool") for _ in range(2)
        )
        x, y = (s.long("pteron.cast", t, shape=(4, 4)) for t in (a, b))
        problems = narrow_integers(s.finish(s.long("aten.mm.default", x, y, shape=(4, 4))))
        assert {problem.what for problem in problems} == set(expected)


def test_an_input_of_such_an_operator_is_checked_at_upload() -> None:
    s = Integers()
    x = s.x()
    out = s.add("aten.allclose.default", x, x, 1e-5, 1e-8, False, False, shape=(), dtype=DType.bool)
    assert wide(s.finish(out)) == set()


def test_conversions_are_inserted_once() -> None:
    """Floats are computed from a conversion, and an index of two words is converted to one."""
    s = Integers()
    x = s.x()
    big = s.long("aten.mul.Tensor", x, x)
    roots = [s.add("aten.sqrt.default", big, shape=(4,)) for _ in range(2)]
    first = s.long("aten.slice_copy.Tensor", big, 0, 0, 4, 1)
    graph = s.finish(big, looked_up(s, first), *roots)
    assert narrow_integers(graph) == []
    casts = [node.writes[0].dtype for node in graph.nodes if node.name == "pteron.cast"]  # type: ignore[union-attr]
    assert casts == [DType.float32, DType.int32]
    assert [node.index for node in graph.nodes] == list(range(len(graph.nodes)))


CLAMP = "select(select(x, s0, x < s0), s1, select(x, s0, x < s0) > s1)"


@pytest.mark.parametrize(
    ("expression", "of", "expected"),
    [
        ("a + s0 * b", {"a": (0, 9), "b": (-1, 2), "s0": (3, 3)}, (-3, 15)),
        ("iremainder4(x, s0)", {"x": INT64, "s0": (7, 7)}, (0, 6)),
        (CLAMP, {"x": INT64, "s0": (0, 0), "s1": (9, 9)}, (0, 9)),
        ("x & s0", {"x": INT64, "s0": (255, 255)}, (0, 255)),
        ("ishr4(x, s0)", {"x": INT64, "s0": (33, 33)}, (-(2**30), 2**30 - 1)),
        ("ifloordiv4(x, s0)", {"x": (-9, 10), "s0": (2, 2)}, (-5, 5)),
        ("x * x", {"x": (-(2**40), 5)}, INT64),
        ("abs(x)", {"x": (-5, 3)}, (0, 5)),
        ("~x", {"x": (0, 7)}, (-8, -1)),
    ],
)
def test_intervals(expression: str, of: dict[str, Interval], expected: Interval) -> None:
    assert interval(expression, of) == expected


def test_expressions_in_two_words() -> None:
    assert in_two_words("a + s0 * b") == ("add64(a, mul64(s0, b))", False)
    assert in_two_words("select(vec4<i32>(0), vec4<i32>(1), !(a == b))")[0].count("all(a == b)") == 1


def test_declarations_name_parameters() -> None:
    for name, spec in registered().items():
        rule = spec.integers
        listed = (*rule.moves, *rule.accumulates, *rule.indices, *rule.decides, *rule.floats, *rule.shapes)
        assert set(listed) <= set(spec.parameters), name
    assert fits((0, 1)) and not fits(INT64)
