"""Parts of a machine that some tests need."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def missing(reason: str) -> NoReturn:
    """Skip a test that needs what is not here. CI must have everything, so there the test fails."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{reason}, and CI=true forbids to skip tests", pytrace=False)
    pytest.skip(reason)
