"""Two thousand damaged files: each is accepted or refused with an error of ours. `make fuzz` tries more."""

from __future__ import annotations

import pytest

from tests.hostile.fuzz import fuzz

COUNTS = {"plan": 1500, "xnnpack": 300, "inspect": 300, "ptd": 300, "gguf": 200}


@pytest.mark.parametrize("target", COUNTS)
def test_mutants(target: str) -> None:
    summary = fuzz(target, COUNTS[target], start=10_000_000)
    assert summary.total == COUNTS[target]
    assert not summary.findings, summary


def test_mutants_that_are_loaded_and_run(device: object) -> None:
    summary = fuzz("run", 60, start=10_000_000)
    assert summary.outcomes.get("accepted", 0) > 5, summary
    assert not summary.findings, summary


def test_a_mutant_is_its_number() -> None:
    from tests.hostile.targets import mutant

    assert mutant("plan", 17) == mutant("plan", 17) != mutant("plan", 18)
