"""The package index has every pinned package, for every Python that pyproject.toml allows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pure.test_pins import PYTHONS, SETS, pins
from tests.support.missing import missing

FROM_SOURCE = "antlr4-python3-runtime"  # has no wheel, and is plain Python


@pytest.mark.slow
@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("name", [*SETS, "dev-models"])
def test_the_index_has_a_file_for_this_python(name: str, python: str, tmp_path: Path) -> None:
    """pip finds a wheel of every pin. It downloads descriptions only, a minute for each Python."""
    chosen = tmp_path / "pins.txt"
    # pip evaluates markers for the Python that it runs in, so the file has none.
    chosen.write_text("".join(f"{package}=={version}\n" for package, version in pins(name, python).items()))
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--no-deps", "-q"]
    command += ["--only-binary", ":all:", "--no-binary", FROM_SOURCE, "--python-version", python]
    command += ["--target", str(tmp_path / "target"), "-r", str(chosen)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PIP_NO_INPUT": "1"})
    if re.search(r"(?i)connection|resolve host|timed out|name resolution", done.stderr):
        missing("the package index cannot be reached")
    assert done.returncode == 0, done.stderr[-1500:]
