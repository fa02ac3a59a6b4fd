"""The last line of a run: how many cases were run, and how many passed."""

from __future__ import annotations

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A test counts as the number of cases that it recorded, or as one case.

    A report of a failed collection has no properties. It counts as one failed case.
    """
    counts = {"passed": 0, "failed": 0, "error": 0}
    for outcome in counts:
        for report in terminalreporter.stats.get(outcome, []):
            counts[outcome] += dict(getattr(report, "user_properties", ())).get("cases", 1)
    total = sum(counts.values())
    terminalreporter.write_line(f"conformance: {counts['passed']} of {total} cases passed")
