"""Every case of the table: exported once, run on one loaded program, and compared with torch."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from pteron.engine.devices.opening import Device
from tests.conftest import Once
from tests.dynamic_shape.__main__ import run
from tests.dynamic_shape.recording import Recording, record
from tests.dynamic_shape.replay import replay
from tests.dynamic_shape.table import CASES, Case


@pytest.mark.parametrize("case", CASES, ids=str)
def test_results_equal_torch_at_every_live_shape(case: Case, device: Device, once: Once) -> None:
    folder = once(f"cases/{case.name}", lambda folder: record(case, folder))
    replay(Recording(folder), device)


def test_a_wrong_result_is_detected(
    device: Device, once: Once, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = next(c for c in CASES if c.name == "residual")
    shutil.copytree(once(f"cases/{case.name}", lambda folder: record(case, folder)), tmp_path / "residual")
    assert run(tmp_path, device) == 0
    last_of_a_small_call = tmp_path / "residual" / "call2.output0.bin"
    numbers = np.fromfile(last_of_a_small_call, np.float32)
    numbers[-1] += 0.01
    numbers.tofile(last_of_a_small_call)
    assert run(tmp_path, device) == 1
    said = capsys.readouterr().out
    assert "residual: passed\nall passed\nresidual: FAILED\nAssertionError: call 2, output 0: 1 of " in said
    assert "1 failed" in said
