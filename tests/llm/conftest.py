"""One tiny language model for all tests of generation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import pteron.llm
from pteron.devices import Device
from tests.llm import tiny_llama


@pytest.fixture(scope="session")
def model_folder(once: Callable[[str, Callable[[Path], Any]], Path]) -> Path:
    return once("tiny_llama", tiny_llama.make)


@pytest.fixture(scope="session")
def llm(model_folder: Path, device: Device) -> Iterator[pteron.llm.LanguageModel]:
    with pteron.llm.load(model_folder / "model.pte", device=device) as model:
        yield model
