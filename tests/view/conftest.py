"""The program that the tests of the page share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.view.programs import write


@pytest.fixture(scope="session")
def program(once: Any) -> Path:
    path: Path = once("view", write) / "blocks.pte"
    return path
