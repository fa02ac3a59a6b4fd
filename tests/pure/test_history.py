"""The history of the benchmarks: what a release keeps of a run, and the page that shows it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks import history
from benchmarks.history import Release


def test_the_page_is_current() -> None:
    text = history.PAGE.read_text("utf-8")
    assert text.count("<!-- numbers: ") == len(history.GROUPS)
    assert history.with_tables(text, history.read()[-1]) == text, "run python -m benchmarks.history page"


def test_a_page_gets_the_rows_of_its_group() -> None:
    rows = {"SmolLM2-135M, a step": {"pteron": 30.0, "llama": 10.0}, "rms_norm": {"pteron": 1.0}}
    release = Release("2026-01-02", "1.0", "A", "Idle.", rows)
    page = "before\n<!-- numbers: SmolLM2-135M -->\nold\n<!-- end of numbers -->\nafter\n"
    made = history.with_tables(page, release)
    assert made == history.with_tables(made, release)
    assert made.startswith(
        "before\n<!-- numbers: SmolLM2-135M -->\nPteron 1.0, 2026-01-02, A. Idle.\n\n| CPU ms |"
    )
    assert "| SmolLM2-135M, a step | 30 | 10 | 3.0 |\n<!-- end of numbers -->\nafter\n" in made
    assert "old" not in made and "rms_norm" not in made
    with pytest.raises(KeyError):
        history.with_tables(page.replace("SmolLM2-135M", "unknown"), release)


def test_a_release_has_the_last_result_of_each_row_and_side() -> None:
    lines = [
        {"time": "2026-01-01T10:00:00", "row": "a", "side": "pteron", "adapter": "A", "cpu_ms": 5.0},
        {"time": "2026-01-02T10:00:00", "row": "a", "side": "pteron", "adapter": "B", "cpu_ms": 4.00004},
        {"time": "2026-01-02T10:00:00", "row": "a", "side": "ncnn", "adapter": "C", "cpu_ms": 9.0},
        {"time": "2026-01-02T10:00:00", "row": "b", "side": "ncnn", "adapter": "C", "cpu_ms": None},
        {"time": "2026-01-02T11:00:00", "row": "load", "side": "pteron", "adapter": "B", "cpu_s": 2.5},
    ]
    made = history.summary(lines, "1.0", "idle")
    rows = {"a": {"pteron": 4.0, "ncnn": 9.0}, "load": {"pteron": 2500.0}}
    assert made == Release("2026-01-02", "1.0", "B", "idle", rows)


def test_a_version_has_one_line(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    old, first, second = (
        Release(date, version, "A", "", {"a": {"pteron": 1.0}})
        for date, version in (("2026-01-01", "0.9"), ("2026-02-01", "1.0"), ("2026-02-02", "1.0"))
    )
    history.write(history.with_release([old, first], second), path)
    assert history.read(path) == [old, second]
    assert len(path.read_text().splitlines()) == 2 and json.loads(path.read_text().splitlines()[0])
