"""The server answers with the language model that the tests of generation use."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pteron.llm
from pteron.engine.devices.opening import Device
from pteron.llm import LanguageModel
from pteron.llm.batch import Batch
from tests.llm.conftest import llm, model_folder
from tests.llm.tool_models import HERMES, make_tool_model

__all__ = ["llm", "model_folder"]


@pytest.fixture(scope="session")
def tool_llm(once: Any, device: Device) -> Iterator[LanguageModel]:
    """Random weights, with a template for tools and a context that is long enough for them."""
    folder: Path = once("tool-model", make_tool_model)
    with pteron.llm.load(folder / "model.gguf", chat_template=HERMES, device=device) as model:
        yield model


@pytest.fixture()
def slow(llm: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps that take long enough to do something meanwhile."""
    step = Batch.step

    def slowly(batch: Batch) -> Any:
        time.sleep(0.05)
        return step(batch)

    monkeypatch.setattr(Batch, "step", slowly)
