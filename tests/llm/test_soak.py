"""A short run of `make soak`: it must still work, and find nothing."""

from pathlib import Path

import pytest

from tests.hostile.soak import soak


def test_a_short_soak_finds_nothing(model_folder: Path) -> None:
    outcomes = soak(0.02, model_folder / "model.pte")
    assert [outcome.name for outcome in outcomes] == [
        "calls from 64 threads",
        "interrupts",
        "conversations",
        "loads",
    ]
    assert [outcome.wrong for outcome in outcomes] == [0, 0, 0, 0]
    assert [outcome.grown_gpu_nbytes for outcome in outcomes] == [0, 0, 0, 0]


@pytest.mark.slow
def test_a_whole_soak_keeps_memory_flat(model_folder: Path) -> None:
    for outcome in soak(1.0, model_folder / "model.pte"):
        assert outcome.wrong == 0 and outcome.grown_gpu_nbytes == 0
        assert outcome.grown_mib < 64
