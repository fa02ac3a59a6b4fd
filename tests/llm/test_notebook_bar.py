"""Progress bars in notebooks: long work shows one bar that changes in place; elsewhere nothing is shown."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import pteron
import pteron.llm
from pteron._util import progress
from pteron._util.progress import NotebookBar
from pteron.engine.devices.opening import Device
from tests.llm.tiny_models import LLAMA, write_gguf
from tests.support import DATA


class Notebook:
    """Has the parts of IPython that the bar uses. `bars` has all contents of each bar."""

    def __init__(self, patch: pytest.MonkeyPatch, shell: Any) -> None:
        self.bars: list[list[str]] = []
        ipython: Any = ModuleType("IPython")
        ipython.get_ipython = lambda: shell
        ipython.display = display = ModuleType("IPython.display")
        display.__dict__.update(HTML=str, display=self._new_bar)
        patch.setitem(sys.modules, "IPython", ipython)
        patch.setitem(sys.modules, "IPython.display", display)
        patch.setattr(progress, "DELAY", 0)
        patch.setattr(progress, "INTERVAL", 0)

    def _new_bar(self, content: str, *, display_id: bool) -> Any:
        assert display_id
        shown = [content]
        self.bars.append(shown)
        return SimpleNamespace(update=shown.append)


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Notebook:
    return Notebook(monkeypatch, SimpleNamespace(kernel="a kernel"))


def test_a_bar_changes_in_place(notebook: Notebook) -> None:
    bar = NotebookBar("<converting>")
    bar("reading", 0.25, 1.0)
    bar("done", 1.0, 1.0)
    assert notebook.bars == [
        [
            "&lt;converting&gt; <progress value='0.25' max='1.0'></progress> reading",
            "&lt;converting&gt; <progress value='1.0' max='1.0'></progress> done",
        ]
    ]


def test_short_work_shows_nothing(notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "DELAY", 1e6)
    bar = NotebookBar("verifying")
    bar("verifying", 1, 2)
    bar("verifying", 2, 2)
    assert not notebook.bars


def test_changes_are_not_more_frequent_than_people_see(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "INTERVAL", 1e6)
    bar = NotebookBar("verifying")
    for done in range(1, 6):
        bar("verifying", done, 5)
    assert [shown.rpartition("> ")[2] for shown in notebook.bars[0]] == ["1 of 5", "5 of 5"]


def test_in_a_terminal_nothing_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Notebook(monkeypatch, shell=SimpleNamespace())
    NotebookBar("verifying")("verifying", 1, 2)
    assert not terminal.bars


def test_without_ipython_nothing_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    NotebookBar("verifying")("verifying", 1, 2)
    assert "IPython" not in sys.modules


def convert(folder: Path, device: Device) -> str:
    pteron.llm.convert(write_gguf(folder / "tiny.gguf", LLAMA), folder / "tiny.pte", max_seq_len=8)
    return "converting tiny.gguf <progress value='1.0' max='1.0'></progress> done"


def verify(folder: Path, device: Device) -> str:
    x = np.ones((1, 1, 2, 64), np.float32)
    pteron.verify(DATA / "dyn_rms.pte", inputs=[x], against="portable", device=device)
    return "verifying <progress value='1' max='1'></progress> 1 of 1"


def map_rows(folder: Path, device: Device) -> str:
    with pteron.load(DATA / "emb_dyn.pte", device=device) as program:
        assert len(list(program.map([1, 2, 3]))) == 3
    return "rows <progress value='3' max='3'></progress> 3 of 3"


@pytest.mark.parametrize("work", [convert, verify, map_rows])
def test_work_is_shown(
    work: Callable[[Path, Device], str], notebook: Notebook, tmp_path: Path, device: Device
) -> None:
    last = work(tmp_path, device)
    assert [shown[-1] for shown in notebook.bars] == [last]
