"""A rule gets arguments of its declared kinds: others are refused when a node is created."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from pteron.compiler.ir.checks import OpError
from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ir.kinds import Scalar, Unused, kind_of
from pteron.compiler.ir.live import LiveInt, LiveResult, LiveTensor
from pteron.compiler.ir.op import op
from pteron.compiler.ir.values import SymInt, Tensor, ValueId
from pteron.compiler.lower.builder import Builder
from pteron.compiler.ops import find
from pteron.errors import FormatError

TENSOR = Tensor(ValueId(0), DType.float32, (2, 3), "x")
SYMINT = SymInt(ValueId(1), "n")


@pytest.mark.parametrize(
    ("annotation", "given", "taken"),
    [
        (LiveTensor, TENSOR, TENSOR),
        (LiveTensor | None, None, None),
        (LiveInt, SYMINT, SYMINT),
        (LiveResult, SYMINT, SYMINT),
        (int, 2.0, 2),
        (int, True, 1),
        (float, 1, 1.0),
        (bool, 1, True),
        (Scalar, 2.0, 2.0),
        (Scalar, 2, 2),
        (str | None, "floor", "floor"),
        (Sequence[int] | int | None, 3, 3),
        (Sequence[int], (1, 2.0, SYMINT), (1, 2, SYMINT)),
        (tuple[int, ...], (), ()),
        (tuple[LiveTensor, LiveTensor], (TENSOR, TENSOR), (TENSOR, TENSOR)),
        (Unused, (None, "x"), (None, "x")),
    ],
)
def test_valid_arguments_are_accepted(annotation: Any, given: Any, taken: Any) -> None:
    result = kind_of(annotation).take("x", given)
    assert result == taken and type(result) is type(taken)


@pytest.mark.parametrize(
    ("annotation", "given", "message"),
    [
        (LiveTensor, 3, "`x` must be a tensor, the file has 3"),
        (LiveTensor, None, "`x` must be a tensor, the file has nothing"),
        (LiveTensor, SYMINT, "`x` must be a tensor, the file has the integer n, which is computed"),
        (LiveResult, 3, "`x` must be an integer to write to, the file has 3"),
        (int, 2.5, "`x` must be an integer, the file has 2.5"),
        (int, float("inf"), "`x` must be an integer, the file has inf"),
        (int | None, "a" * 99, f"`x` must be an integer or nothing, the file has the string '{'a' * 40}'..."),
        (float, TENSOR, "`x` must be a number, the file has the tensor x:float32[2, 3]"),
        (Scalar, (1, 2), "`x` must be an integer or a number, the file has a list of 2: 1, 2"),
        (
            Sequence[LiveTensor],
            (TENSOR, 1),
            "`x` must be a list, each item a tensor, the file has a list of 2",
        ),
        (tuple[int, int], (1,), "`x` must be a list of 2, in order: an integer, an integer"),
        (None, 0, "`x` must be nothing, the file has 0"),
    ],
)
def test_invalid_arguments_are_refused_by_name(annotation: Any, given: Any, message: str) -> None:
    with pytest.raises(OpError) as raised:
        kind_of(annotation).take("x", given)
    assert str(raised.value).startswith(message)


def test_a_rule_must_annotate_every_parameter() -> None:
    with pytest.raises(TypeError, match=r"parameter `b`: .* is not the annotation of an operator argument"):

        @op("tests.undeclared")
        def undeclared(a: LiveTensor, b: Any, out: LiveTensor) -> None: ...

    assert find("tests.undeclared") is None


def test_the_error_of_a_node_names_the_operator() -> None:
    x, out = (Tensor(ValueId(n), DType.float32, (2,), f"v{n}") for n in range(2))
    with pytest.raises(
        FormatError, match=r"^aten\.add\.Tensor \(operator 3\): `b` must be a tensor, the file has 4"
    ):
        Builder("forward").node("aten.add.Tensor", [x, 4, 1, out], "operator 3")


def test_a_rule_that_cannot_compute_refuses() -> None:
    spec = find("floordiv")
    assert spec is not None
    with pytest.raises(OpError, match="division by zero"):
        spec.evaluate([1, 0, LiveResult()])
    with pytest.raises(OpError, match="its arguments do not fit together"):
        spec.evaluate([1, "x", LiveResult()])
