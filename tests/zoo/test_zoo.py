"""Small models of the zoo, one mode each. `make zoo` tries all models in every mode."""

from __future__ import annotations

from pathlib import Path

import pytest

from pteron.engine.devices.opening import Device
from tests.zoo import results
from tests.zoo.exporter import MODES
from tests.zoo.results import EQUAL, NOT_EXPORTED, Result
from tests.zoo.table import LONGER, SMALL, table
from tests.zoo.trial import Trial, reason


@pytest.mark.parametrize(
    ("name", "mode"),
    [*SMALL.items(), *(pytest.param(*pair, marks=pytest.mark.slow) for pair in LONGER.items())],
)
def test_the_model_equals_torch(name: str, mode: str, device: Device) -> None:
    result = Trial(table()[name], device).run(MODES[mode])
    assert result.outcome == EQUAL, result.reason


def test_the_table_is_large() -> None:
    assert len(table()) >= 150


def test_results_are_written_in_order_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    first, second = list(table())[:2]
    kept = [
        Result(second, "vulkan static", EQUAL, worst=1e-6, ratio=2.5, versions="torch 2"),
        Result(first, "portable static", NOT_EXPORTED, "an error"),
        Result(first, "portable dynamic", EQUAL, worst=0.0, ratio=3.0),
    ]
    results.write(kept, path)
    assert list(results.read(path).values()) == sorted(kept, key=lambda r: (r.model, r.mode))


def test_the_reason_is_the_first_cause_in_one_line() -> None:
    try:
        try:
            raise ValueError("mode <Mode object at 0x7f00> from\n input 0\n\nallocated at: ...")
        except ValueError as cause:
            raise RuntimeError("a pass failed") from cause
    except RuntimeError as error:
        assert reason(error) == "ValueError: mode <Mode> from input 0"
