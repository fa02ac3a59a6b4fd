"""A working folder with a small model."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.llm.tiny_models import LLAMA, write_gguf


@pytest.fixture()
def folder(tmp_path: Path, shared_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder of a page or a notebook, with a language model."""
    # Converted models go to a cache of these tests. Compiled shaders stay in the cache of the driver.
    monkeypatch.setenv(
        "MESA_SHADER_CACHE_DIR", os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    )
    monkeypatch.setenv("XDG_CACHE_HOME", str(shared_folder / "documents"))
    write_gguf(tmp_path / "model.gguf", replace(LLAMA, context=512))
    monkeypatch.chdir(tmp_path)
    return tmp_path
