"""The kernels of a language model and of some operators, recorded once."""

from __future__ import annotations

import pytest
from benchmarks.gpu_model import drivers, gate
from benchmarks.gpu_model.recorded import Recorded

from tests.conftest import Once
from tests.support.missing import missing


@pytest.fixture(scope="session")
def kernels(once: Once) -> Recorded:
    if lacking := drivers.missing(gate.FAMILIES):
        missing(lacking)
    folder = once("gpu_model", lambda folder: gate.recorded().write(folder / "recorded.json"))
    return Recorded.read(folder / "recorded.json")
