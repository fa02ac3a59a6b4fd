"""Every case of the table, exported once, replayed on one loaded program and held against torch."""

from __future__ import annotations

import pytest

from pteron.gpu.device import Device
from tests.conftest import Once
from tests.dynamic_shape.recording import Recording, record
from tests.dynamic_shape.replay import replay
from tests.dynamic_shape.table import CASES, Case


@pytest.mark.parametrize("case", CASES, ids=str)
def test_results_are_those_of_torch_at_every_live_shape(case: Case, device: Device, once: Once) -> None:
    folder = once(f"cases/{case.name}", lambda folder: record(case, folder))
    replay(Recording(folder), device)
