"""The Python code in the documents runs: page by page, from top to bottom, with small models."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pteron
from tests.llm import tiny_encoders, tiny_models
from tests.server.running import running
from tests.support.documents import blocks

ADDRESS = "http://127.0.0.1:8080"  # of the server on the pages


class Layer(torch.nn.Module):
    """The module that README.md exports."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).relu()


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the pages take for granted."""
    folder = tmp_path_factory.mktemp("models")
    tiny_models.write_gguf(folder / "model.gguf", tiny_models.LLAMA)
    tiny_encoders.write_gguf(folder / "embedder.gguf", tiny_encoders.model("bert"))
    layer = Layer().eval()
    length = torch.export.Dim("length", min=1, max=128)
    pteron.export(layer, (torch.zeros(1, 128, 64),), folder / "layer.pte", dynamic_shapes=({1: length},))
    return folder


@pytest.fixture()
def folder(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder of a page, with copies of the models."""
    # Converted models go to a cache of these tests. Compiled shaders stay in the cache of the driver.
    drivers = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    monkeypatch.setenv("MESA_SHADER_CACHE_DIR", str(drivers))
    monkeypatch.setenv("XDG_CACHE_HOME", str(models / "cache"))
    shutil.copytree(models, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(document: str, names: dict[str, Any], address: str = ADDRESS) -> None:
    """Run all blocks of a page. Tracebacks have the lines of the page."""
    found = [block for block in blocks(document) if block.language == "python" and block.runs]
    assert found, f"{document} has no Python code"
    for block in found:
        text = "\n" * (block.line - 1) + block.text.replace(ADDRESS, address)
        exec(compile(text, document, "exec"), names)


@pytest.mark.parametrize("page", ["dynamic-shapes", "start/executorch", "start/local-llm"])
def test_a_page_on_its_own(page: str, folder: Path) -> None:
    run(f"docs/{page}.md", {})


def test_the_page_for_data_continues_that_for_pytorch(folder: Path) -> None:
    run("docs/start/pytorch.md", {})
    run("docs/start/data.md", {})


def test_the_page_for_apps_with_a_server(folder: Path) -> None:
    with pteron.llm.load("model.gguf") as llm, running(llm, name="model") as address:
        run("docs/start/app.md", {}, address)


def test_the_readme(folder: Path) -> None:
    shutil.copy("layer.pte", "model.pte")
    rows = [{"features": row} for row in np.zeros((3, 5, 64), np.float32)]
    names = {"torch": torch, "model": Layer().eval(), "x": torch.zeros(1, 128, 64), "rows": rows}
    run("README.md", names)
