"""JavaScript that runs in Node.js, without a browser."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pteron.web.site import page_files

FRAME = """
import { readFileSync } from "node:fs";
const given = JSON.parse(readFileSync(0, "utf8"));
const answer = (value) => console.log(JSON.stringify(value));
"""


def write_modules(folder: Path) -> None:
    """The files of a site with a chat page, as ES modules for Node.js."""
    for name, content in page_files(chat=True).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    (folder / "package.json").write_text('{"type": "module"}')


def run_javascript(source: str, folder: Path, given: Any) -> Any:
    """What the code passes to `answer`. It can use `given`, and import files of the folder.

    A machine without Node.js skips the tests that need it, but CI must have it.
    """
    node = shutil.which("node")
    if node is None:
        reason = "the tests of JavaScript need Node.js, and no program `node` was found"
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    done = subprocess.run(
        [node, "--input-type=module", "--eval", FRAME + source],
        cwd=folder,
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)
