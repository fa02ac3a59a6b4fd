"""Models of optimum-executorch answer on Pteron as on ExecuTorch. See scripts/own_venv.sh."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.optimum.models import MODELS

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.own_venv


def child(*args: str) -> None:
    subprocess.run([sys.executable, "-m", "tests.optimum.child", *args], cwd=ROOT, check=True)


@pytest.fixture(scope="session")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What each model answers, by runtime."""
    folder = tmp_path_factory.mktemp("optimum")
    child("export", str(folder))
    for runtime in ("executorch", "pteron"):
        child("run", str(folder), runtime)
    return {path.stem: json.loads(path.read_text()) for path in Path(folder).glob("*.json")}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_answers_as_on_executorch(answers: dict[str, dict[str, Any]], name: str) -> None:
    expected, got = answers["executorch"][name], answers["pteron"][name]
    assert isinstance(expected, list), expected
    assert isinstance(got, list), got
    if isinstance(np.ravel(expected[0])[0], np.floating):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    else:
        assert got == expected
