"""JavaScript that runs in Node.js, without a browser."""

from __future__ import annotations

import json
import shutil
import subprocess
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pteron.web.site import page_files
from tests.support.missing import missing

FRAME = """
import { readFileSync } from "node:fs";
const given = JSON.parse(readFileSync(0, "utf8"));
const answer = (value) => console.log(JSON.stringify(value));
"""


@cache
def node() -> str:
    """The program of Node.js: that of playwright, whose version is pinned, else that of the machine."""
    playwright = find_spec("playwright")
    own = playwright and playwright.origin and Path(playwright.origin).parent / "driver" / "node"
    for program in map(str, filter(None, (own, shutil.which("node")))):
        with suppress(OSError):
            if subprocess.run([program, "--version"], capture_output=True).returncode == 0:
                return program
    return missing("the tests of JavaScript need Node.js: `make setup` installs it")


def write_modules(folder: Path) -> None:
    """The files of a site with a chat page, as ES modules for Node.js."""
    for name, content in page_files(chat=True).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    (folder / "package.json").write_text('{"type": "module"}')


def run_javascript(source: str, folder: Path, given: Any) -> Any:
    """What the code passes to `answer`. It can use `given`, and import files of the folder."""
    done = subprocess.run(
        [node(), "--input-type=module", "--eval", FRAME + source],
        cwd=folder,
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)
