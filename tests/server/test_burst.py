"""Honest clients are answered while hostile ones do what they can."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.server.burst import run


def test_a_small_burst_loses_no_answer(model_folder: Path) -> None:
    outcome = run(model_folder / "model.pte", clients=40, hostile=8)
    assert outcome.right == 40, outcome
    assert len(outcome.health) > 5
    assert max(outcome.health) < 5, outcome


@pytest.mark.slow
def test_a_burst_of_five_hundred_loses_no_answer(model_folder: Path) -> None:
    outcome = run(model_folder / "model.pte", clients=500, hostile=20)
    assert outcome.right == 500, outcome
    assert max(outcome.health) < 1, outcome
