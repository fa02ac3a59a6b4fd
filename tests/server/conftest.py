"""The server answers with the language model that the tests of generation use."""

from __future__ import annotations

import time
from typing import Any

import pytest

from pteron.llm import LanguageModel
from pteron.llm.batch import Batch
from tests.llm.conftest import llm, model_folder

__all__ = ["llm", "model_folder"]


@pytest.fixture()
def slow(llm: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps that take long enough to do something meanwhile."""
    step = Batch.step

    def slowly(batch: Batch) -> Any:
        time.sleep(0.05)
        return step(batch)

    monkeypatch.setattr(Batch, "step", slowly)
