"""Tint, Chrome's WGSL compiler, in Node.js."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.support.missing import missing
from tests.support.node import node

HERE = Path(__file__).parents[1] / "tint"
INSTALLED = (HERE / "node_modules" / "webgpu").exists()


def compile_all(texts: list[str], folder: Path) -> list[Any]:
    """The error of each text; empty: it compiles."""
    if not INSTALLED:
        missing("Tint is not installed: `make setup` does that")
    (folder / "texts.json").write_text(json.dumps(texts))
    command = [node(), HERE / "compile.mjs", folder / "texts.json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    errors: list[Any] = json.loads(done.stdout)
    return errors
