"""litellm against the server. It needs an environment of its own: its dependencies do not fit the others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pteron.llm import LanguageModel
from tests.server.running import running

PACKAGES = ("litellm==1.106.2", "mcp")  # litellm imports mcp for tools, but does not require it


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has litellm. `PTERON_LITELLM_PYTHON` names one that is there."""
    if given := os.environ.get("PTERON_LITELLM_PYTHON"):
        return Path(given)
    folder = tmp_path_factory.mktemp("litellm")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    made = folder / "bin" / "python"
    installed = subprocess.run([str(made), "-m", "pip", "install", "-qq", *PACKAGES], capture_output=True)
    if installed.returncode:
        pytest.skip(f"litellm cannot be installed: {installed.stderr.decode()[-300:]}")
    return made


@pytest.mark.slow
def test_litellm(python: Path, tool_llm: LanguageModel) -> None:
    script = Path(__file__).with_name("litellm_client.py")
    with running(tool_llm, name="tiny") as url:
        environment = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}  # it downloads nothing
        ran = subprocess.run(
            [str(python), str(script), url], capture_output=True, env=environment, timeout=600
        )
    assert ran.returncode == 0, ran.stderr.decode()[-2000:]
    got = json.loads(ran.stdout.decode().splitlines()[-1])
    assert 1 <= got["tokens"] <= 5
    assert got["chunks"] >= 1
    assert got["structured"]["city"] in ("Rome", "Oslo")
    name, arguments = got["call"]
    assert (name, got["reason"]) == ("weather", "tool_calls")
    assert arguments["city"] in ("Rome", "Oslo")
