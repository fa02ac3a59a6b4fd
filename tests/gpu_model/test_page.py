"""docs/performance.md is what its results say."""

from __future__ import annotations

import json

from benchmarks.gpu_model import page


def test_the_page_is_made_of_the_results() -> None:
    results = json.loads(page.RESULTS.read_text("utf-8"))
    assert page.PAGE.read_text("utf-8") == page.text(results), "write it: python -m benchmarks.gpu_model.page"
