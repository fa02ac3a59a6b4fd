"""`verify=`: of a share of the calls, a node is computed again."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

import pteron.llm
from pteron.engine.devices.opening import Device
from pteron.errors import InputError
from pteron.llm import LanguageModel
from pteron.server import create_app
from tests.server.running import running
from tests.server.test_metrics import ASK, metrics
from tests.support.damage import damaged

__all__ = ["damaged"]


def outcomes(llm: LanguageModel) -> dict[str, float]:
    """Answers to several clients with all calls checked."""
    with running(llm, name="tiny", parallel=2, verify=1.0) as url:

        def ask(number: int) -> Any:
            return httpx.post(f"{url}/v1/completions", json=ASK | {"prompt": "hello" * number}, timeout=300)

        with ThreadPoolExecutor(3) as clients:
            assert all(answer.status_code == 200 for answer in clients.map(ask, [1, 2, 3]))
        return {k.split()[1]: n for k, n in metrics(url).items() if k.startswith("verified_nodes_total")}


@pytest.mark.parametrize("parallel", [1, 2])
def test_right_nodes_are_counted(model_folder: Path, device: Device, parallel: int) -> None:
    """And answers are those of a server that checks nothing."""
    with pteron.llm.load(model_folder / "model.pte", device=device, parallel=parallel) as llm:
        want = llm.generate("hello", max_new_tokens=3).text
        llm.sessions.close()
        found = outcomes(llm)
        assert found.get("right", 0) > 3 and not found.get("different"), found
        assert llm.generate("hello", max_new_tokens=3).text == want


def test_wrong_nodes_are_counted_and_logged(
    model_folder: Path,
    device: Device,
    damaged: Callable[[str, str, str], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    damaged("binary", "y_put(i, apply(", "y_put(i, -apply(")
    with pteron.llm.load(model_folder / "model.pte", device=device) as llm:
        found = outcomes(llm)
    assert found.get("different", 0) > 0, found
    assert "times the allowed error" in capsys.readouterr().err


def test_a_share_is_at_most_all(llm: LanguageModel) -> None:
    with pytest.raises(InputError, match=r"verify is 1.5: expected a share of the calls, between 0 and 1"):
        create_app(llm, verify=1.5)
