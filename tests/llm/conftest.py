"""Tiny language models that several tests use."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import pteron.llm
from pteron.engine.devices.opening import Device
from tests.llm import tiny_llama


@pytest.fixture(scope="session")
def model_folder(once: Callable[[str, Callable[[Path], Any]], Path]) -> Path:
    return once("tiny_llama", tiny_llama.make)


@pytest.fixture(scope="session")
def llm(model_folder: Path, device: Device) -> Iterator[pteron.llm.LanguageModel]:
    with pteron.llm.load(model_folder / "model.pte", device=device) as model:
        yield model


@pytest.fixture(scope="session")
def stock(once: Callable[[str, Callable[[Path], Any]], Path]) -> Path:
    """The folder with ExecuTorch's own export of a llama."""

    def make(folder: Path) -> None:
        command = [sys.executable, "-m", "tests.llm.executorch_llama", str(folder)]
        root = Path(__file__).parents[2]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr[-3000:]

    return once("executorch_llama", make)
