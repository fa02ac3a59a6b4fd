"""docs/operators.md is up to date, and every rule follows live sizes."""

from __future__ import annotations

import pytest

from pteron.tools.verify.catalogue import CATALOGUE
from tests.support.operators.docs import PATH, page
from tests.support.operators.graphs import LiveEntry


def test_the_table_is_current() -> None:
    pytest.importorskip("pteron.compiler.software", reason="the table also lists the routes of this package")
    assert PATH.read_text("utf-8") == page(), "run `make docs`"


@pytest.mark.parametrize("name", CATALOGUE)
def test_live_sizes_are_followed(name: str) -> None:
    for entry in CATALOGUE[name]:
        for dtype in entry.dtypes:
            got, expected = LiveEntry(entry, dtype).resize(entry.sizes[1])
            assert got == expected, f"{name} of {dtype}"
