"""The Python code in the documents runs: page by page, from top to bottom, with small models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pydantic
import pytest

import pteron
from tests.server.running import running
from tests.support.documents import blocks

ADDRESS = "http://127.0.0.1:8080"  # of the server on the pages


def run(document: str, names: dict[str, Any], address: str = ADDRESS) -> None:
    """Run all blocks of a page. Tracebacks have the lines of the page."""
    found = [block for block in blocks(document) if block.language == "python" and block.runs]
    assert found, f"{document} has no Python code"
    for block in found:
        text = "\n" * (block.line - 1) + block.text.replace(ADDRESS, address)
        exec(compile(text, document, "exec"), names)


@pytest.mark.parametrize("page", ["dynamic-shapes", "steps", "start/executorch", "start/local-llm"])
def test_a_page_on_its_own(page: str, folder: Path) -> None:
    run(f"docs/{page}.md", {})


def test_the_page_for_data_continues_that_for_pytorch(folder: Path) -> None:
    run("docs/start/pytorch.md", {})
    run("docs/start/data.md", {})


def test_the_page_for_apps_with_a_server(folder: Path) -> None:
    with pteron.llm.load("model.gguf") as llm, running(llm, name="model") as address:
        run("docs/start/app.md", {}, address)


def test_the_page_of_generation(folder: Path) -> None:
    with pteron.llm.load("model.gguf") as llm:
        run("docs/generation.md", {"llm": llm, "pydantic": pydantic})


def test_the_readme(folder: Path) -> None:
    """And pages that continue it."""
    names: dict[str, Any] = {}
    run("README.md", names)
    run("docs/view.md", {})
    run("docs/verify.md", {**names, "module": names["model"]})
