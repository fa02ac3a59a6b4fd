"""A test with the argument `real_file` runs once for each file in `data` from stock ExecuTorch."""

from pathlib import Path

import pytest

from tests.pure.pte.pte_samples import DATA, FIXTURES


@pytest.fixture(params=FIXTURES)
def real_file(request: pytest.FixtureRequest) -> Path:
    return DATA / request.param
