"""Tests that take `real_file` run once for each file that stock ExecuTorch exported."""

from pathlib import Path

import pytest

from tests.pure.pte.pte_samples import DATA, FIXTURES


@pytest.fixture(params=FIXTURES)
def real_file(request: pytest.FixtureRequest) -> Path:
    return DATA / request.param
