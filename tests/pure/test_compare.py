"""The comparator of all tests finds differences, and only differences."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tests.support.compare import UNDEFINED, disagreement, disagreements

F, H, I = np.float32, np.float16, np.int32  # noqa: E741


def array(*values: float, dtype: Any = F) -> Any:
    return np.array(values, dtype)


@pytest.mark.parametrize(
    ("got", "want", "message"),
    [
        (array(1, 2), array(1, 2, 3), r"expected float32\[3\], got float32\[2\]"),
        (array(1, 2), array(1, 2, dtype=H), "expected float16"),
        (array(1, 2, dtype=np.int64), array(1, 2, dtype=I), "expected int32"),
        (
            array(1, 2, dtype=I),
            array(1, 3, dtype=I),
            r"^1 of 2 elements, the first at \(1,\): expected 3, got 2",
        ),
        (array(1, 1.011), array(1, 1), "the first at"),
        (array(0.0011), array(0), "expected 0.0, got 0.001"),
        (array(np.nan), array(0), "got nan"),
        (array(np.nan), array(np.nan), "got nan"),
        (array(1), array(np.nan), "expected nan"),
        (array(np.inf), array(3e38), "got inf"),
        (array(np.inf), array(-np.inf), "got inf"),
        (array(1), array(np.inf), "expected inf"),
        (np.int64(3), 3, "expected the integer 3"),
        (4, 3, "expected the integer 3, got 4"),
    ],
)
def test_differences_are_described(got: Any, want: Any, message: str) -> None:
    problem = disagreement(got, want, rtol=1e-2, atol=1e-3)
    assert problem and re.search(message, problem)


@pytest.mark.parametrize(
    ("got", "want"),
    [
        (array(1.009, -1.009), array(1, -1)),
        (array(0.0009), array(0)),
        (array(np.inf, -np.inf), array(np.inf, -np.inf)),
        (array(1.0015, dtype=H), array(1, dtype=H)),
        (array(), array()),
        (3, 3),
        (None, UNDEFINED),
    ],
)
def test_close_values_agree(got: Any, want: Any) -> None:
    assert disagreement(got, want, rtol=1e-2, atol=1e-3) is None


def test_one_tolerance_is_absolute_and_relative() -> None:
    assert disagreement(array(100.9), array(100), 1e-2) is None
    assert disagreement(array(0.009), array(0), 1e-2) is None
    assert disagreement(array(0.011), array(0), 1e-2)


def test_tolerances_are_not_added_up() -> None:
    assert disagreement(array(1.015), array(1), rtol=1e-2, atol=1e-2)


def test_exact_is_exact_for_float16_too() -> None:
    assert disagreement(array(1.001, dtype=H), array(1, dtype=H), 1e-5) is None
    assert disagreement(array(1.001, dtype=H), array(1, dtype=H), 0)


def test_nan_may_be_expected() -> None:
    assert disagreement(array(np.nan, 1), array(np.nan, 1), 0, nan=True) is None
    assert disagreement(array(np.nan, np.nan), array(np.nan, 1), 0, nan=True)


def test_outputs_are_counted_and_named() -> None:
    assert disagreements([array(1)], [array(1), array(2)], 0) == ["expected 2 outputs, got 1"]
    (problem,) = disagreements([array(1), array(3)], [array(1), array(2)], 0)
    assert problem.startswith("output 1: ")
