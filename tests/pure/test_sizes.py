"""Sizes that follow from a number that a call chooses."""

from __future__ import annotations

import pytest

from pteron.compiler.ir.sizes import FreeSize, Size
from pteron.compiler.lower import stored_sizes
from pteron.compiler.lower.stored_sizes import StoredSizes
from pteron.errors import FormatError
from pteron.pte import schema


def test_sizes_of_one_number_stay_related() -> None:
    free = FreeSize(range(1, 9), ((1, 0), (2, 1)))
    one, two = Size(free), Size(free, 2, 1)
    assert two.values == range(3, 18, 2)
    assert [(one.at(most), two.at(most)) for most in (17, 9, 8, 3, 0)] == [
        (8, 17), (4, 9), (3, 7), (1, 3), (1, 3),
    ]  # fmt: skip
    assert two.rule() == "2 * n + 1, from 3 to 17" and str(two) == "3 <= 2*n + 1 <= 17"
    assert free.smaller() == [7, 6, 5, 3, 1]


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        ({"free": [], "inputs": []}, "inputs must be a list of 1"),
        ({"free": [[0, 8]], "inputs": [[4]]}, "bad free sizes"),
        ({"free": [[9, 8, 1]], "inputs": [[4]]}, "has the range 9, 8, 1"),
        ({"free": [[0, 8, 0]], "inputs": [[4]]}, "has the range 0, 8, 0"),
        ({"free": [[7, 8, 9]], "inputs": [[4]]}, "has no values"),
        ({"free": [[0, 8, 1]], "inputs": [[[0, 0, 4]]]}, "a factor below 1"),
        ({"free": [[0, 8, 1]], "inputs": [[[1, 1, 0]]]}, "there is no free size 1"),
        ({"free": [[0, 8, 1]], "inputs": [[[0, 1, 0]]]}, "is not 4"),
        ({"free": [[0, 8, 1]], "inputs": [[[0, 1, -4]]]}, "is not 4"),
        ({"free": [], "inputs": [[3]]}, "a size is 3, but the program has 4"),
        ({"free": [], "inputs": [[4, 4]]}, "input 0 must have 1 sizes"),
        ({"free": [], "inputs": [["4"]]}, "a size is 4, but"),
    ],
)
def test_damaged_sizes_are_refused(
    stored: dict[str, object], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_sizes, "stored_json", lambda *_: stored)
    plan = schema.ExecutionPlan(name="forward", inputs=(0,))
    with pytest.raises(FormatError, match=message):
        StoredSizes(None, plan).input(0, (4,))  # type: ignore[arg-type]
