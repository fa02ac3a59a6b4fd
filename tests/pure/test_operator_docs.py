"""docs/operators.md is up to date, and every rule follows live sizes."""

from __future__ import annotations

import pytest

from tests.support.operators.docs import PATH, page
from tests.support.operators.sample import SAMPLES, SMALLER, OneNodeGraph, without_sample


def test_the_table_is_current() -> None:
    assert PATH.read_text("utf-8") == page(), "run `make docs`"


def test_every_operator_has_a_sample() -> None:
    assert not without_sample()


@pytest.mark.parametrize("name", SAMPLES)
def test_live_sizes_are_followed(name: str) -> None:
    for sample in SAMPLES[name]:
        for dtype in sample.dtypes:
            got, expected = OneNodeGraph(name, sample, dtype).resize(SMALLER)
            assert got == expected, f"{name} of {dtype}"
