"""A page with Pyodide and Pteron. Starting it takes seconds, so all tests of a file share one."""

from __future__ import annotations

import base64
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pteron
from tests.support.browser import opened, serving
from tests.support.missing import missing

HERE = Path(__file__).parent
PYODIDE = HERE / "node_modules" / "pyodide"

PAGE = """<!doctype html><link rel=icon href=data:>
<script type="module">
  import { loadPyodide } from "./pyodide/pyodide.mjs";
  globalThis.ready = (async () => {
    const pyodide = await loadPyodide();
    const archive = await (await fetch("pteron.zip")).arrayBuffer();
    pyodide.unpackArchive(archive, "zip", { extractDir: "/home/pyodide" });
    return pyodide;
  })();
</script>
"""


class PyodidePage:
    """Runs Python in the page. Files of `site` have URLs relative to the page."""

    def __init__(self, page: Any, site: Path) -> None:
        self.page = page
        self.site = site

    def run(self, code: str) -> Any:
        """The result of code with `await`. The value of its last line must be a number or a text."""
        return self.page.evaluate("async (code) => await (await ready).runPythonAsync(code)", code)

    def run_without_jspi(self, code: str) -> Any:
        """The result of code that was started by `runPython`, where Python cannot stop and wait."""
        return self.page.evaluate("async (code) => (await ready).runPython(code)", code)

    def replay(self, folder: Path) -> list[list[Any]]:
        """The outputs of all calls of a recording. None of them may allocate or compile."""
        place = self.site / folder.name
        place.unlink(missing_ok=True)
        place.symlink_to(folder)
        result = json.loads(self.run(f"from in_pyodide import replay\nawait replay({folder.name!r})"))
        assert result["made"] == [0, 0], "a call allocated or compiled something"
        return [[_array(output) for output in outputs] for outputs in result["outputs"]]


def _array(entry: Any) -> Any:
    if isinstance(entry, int):
        return entry
    data = np.frombuffer(base64.b64decode(entry["data"]), entry["dtype"])
    return data.reshape(entry["shape"])


@pytest.fixture(scope="module")
def pyodide(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PyodidePage]:
    if not PYODIDE.exists():
        missing("Pyodide is not installed: `make setup` does that")
    site = tmp_path_factory.mktemp("site")
    (site / "pyodide").symlink_to(PYODIDE)
    (site / "index.html").write_text(PAGE)
    _archive(site / "pteron.zip")
    with serving(site) as url, opened(browser, url) as page:
        yield PyodidePage(page, site)


def _archive(target: Path) -> None:
    """The package without what only other machines use, and the code of these tests."""
    root = Path(pteron.__file__).parent
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(HERE / "in_pyodide.py", "in_pyodide.py")
        for path in root.rglob("*"):
            if path.is_file() and path.suffix in (".py", ".wgsl", ".js"):
                archive.write(path, path.relative_to(root.parent))
