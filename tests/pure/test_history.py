"""The history of the benchmarks: what a release keeps of a run, and the page that shows it."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

from benchmarks import history
from benchmarks.history import Release
from benchmarks.plots import Panel, plot


def test_the_page_and_its_plot_are_current() -> None:
    releases = history.read()
    advice = "run python -m benchmarks.history page"
    assert releases and history.PAGE.read_text("utf-8") == history.page(releases), advice
    assert history.PLOT.read_text("utf-8") == plot(list(history.panels(releases))), advice


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


def test_a_plot_has_a_line_for_each_side_with_several_points() -> None:
    panel = Panel("a < b", ["1", "2", "3"], {"pteron": [3.0, None, 1.0], "ncnn": [None, 2.0, None]})
    svg = ElementTree.fromstring(plot([panel, panel]))
    name = "{http://www.w3.org/2000/svg}"
    assert len(svg.findall(f".//{name}polyline")) == 2
    groups = svg.findall(f"{name}g")
    assert len(groups) == 2 and len(groups[0].findall(f"{name}circle")) == 3
    assert "a < b" in {text.text for text in svg.iter(f"{name}text")}
