"""What `pteron tune --from-report` learns: the fastest route at the most similar shapes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pteron.cli.commands import app
from pteron.errors import FormatError
from pteron.measure import adapter_notes, tuning
from pteron.measure.kernel_report import FORMAT, VERSION
from pteron.measure.learning import learn
from pteron.measure.lessons import Lesson, Lessons, kind_of_key
from pteron.measure.tuning import Tuning
from pteron.plan.routes import LiveShapes

LINEAR = "aten.linear.default float32[128, 2048] float32[2048, 2048]"


def linear(rows: int, width: int, *, batch: tuple[int, ...] = ()) -> LiveShapes:
    return LiveShapes(((*batch, rows, width), (width, width)), ((*batch, rows, width),))


LESSONS = Lessons(
    [
        Lesson.of(LINEAR, linear(1, 2048), "one"),
        Lesson.of(LINEAR, linear(8, 2048), "few"),
        Lesson.of(LINEAR, linear(128, 2048), "many"),
    ]
)


def test_the_kind_of_a_node_leaves_out_sizes_and_vectors() -> None:
    assert kind_of_key(LINEAR) == "aten.linear.default float32 float32"
    assert kind_of_key("aten.linear.default float32[4, 8] float32[8, 8] float32[8]") == kind_of_key(LINEAR)
    assert kind_of_key("aten.linear.default float32[4, 8] float16[8, 8]") != kind_of_key(LINEAR)


@pytest.mark.parametrize("width", [256, 2048, 8192])
@pytest.mark.parametrize("batch", [(), (1,)])
def test_rows_decide_at_every_width(width: int, batch: tuple[int, ...]) -> None:
    routes = [LESSONS.nearest(LINEAR, linear(n, width, batch=batch)) for n in (0, 1, 2, 4, 16, 40, 512)]
    assert routes == ["one", "one", "one", "few", "few", "many", "many"]


def test_shapes_that_are_not_similar_teach_nothing() -> None:
    assert LESSONS.nearest(LINEAR, linear(1024, 2048)) == "many"
    assert LESSONS.nearest(LINEAR, linear(1025, 2048)) is None
    assert LESSONS.nearest(LINEAR, linear(1, 255)) is None
    assert Lessons().nearest(LINEAR, linear(1, 2048)) is None


def test_a_measurement_of_the_node_itself_is_better_than_a_lesson() -> None:
    choice = Tuning({LINEAR: {1: "mine"}}, LESSONS)
    fitting = ["default", "one", "few", "many", "mine"]
    assert choice.prefers(LINEAR, linear(1, 2048), fitting) == "mine"
    other = LINEAR.replace("2048", "512")
    assert choice.prefers(other, linear(1, 512), fitting) == "one"
    assert choice.prefers(other, linear(1, 512), ["default", "many"]) == "default"
    assert choice.prefers("aten.mm.default float32[1, 2]", linear(1, 512), fitting) == "default"
    assert choice.knows(other) and not choice.knows("aten.mm.default float32[1, 2]")
    assert choice.keeps(other, "many") and not choice.keeps(other, "mine")
    assert choice.keeps(LINEAR, "mine") and not choice.keeps(LINEAR, "many")


def test_lessons_survive_a_file() -> None:
    again = Lessons.from_json(json.loads(json.dumps(LESSONS.as_json())))
    assert again.as_json() == LESSONS.as_json()
    assert again.nearest(LINEAR, linear(8, 2048)) == "few"


# -- reports ---------------------------------------------------------------------------------------


def report(**changes: Any) -> dict[str, Any]:
    def case(rows: int, **seconds: float) -> dict[str, Any]:
        live = linear(rows, 2048)
        return {
            "key": LINEAR,
            "reads": live.reads,
            "writes": live.writes,
            "routes": [{"route": route, "seconds": s} for route, s in seconds.items()],
        }

    return {
        "format": FORMAT,
        "format_version": VERSION,
        "pteron": "1",
        "kernels": adapter_notes.kernel_version(),
        "device": {"name": "A GPU", "backend": "Vulkan", "driver": "1.2"},
        "cases": [
            case(1, default=2.0, other=1.0),
            case(128, default=1.0, other=0.99),
            case(512, default=1.0),
        ],
        **changes,
    }


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "report.json"


def test_the_command_stores_what_it_learns_for_the_device_of_the_report(path: Path) -> None:
    path.write_text(json.dumps(report()))
    result = CliRunner().invoke(app, ["tune", "--from-report", str(path), "--json"])
    assert result.exit_code == 0, (result.stdout, result.stderr)
    told = json.loads(result.stdout)
    assert told["device"] == "A GPU" and told["saved"] == str(tuning.LESSONS.path)
    assert [choice["best"] for choice in told["choices"]] == [
        "other",
        "default",
    ]  # a single route is no choice
    stored = json.loads(tuning.LESSONS.path.read_text())
    lessons = Lessons.from_json(stored[adapter_notes.identity_of("A GPU", "Vulkan", "1.2")])
    assert lessons.nearest(LINEAR, linear(2, 512)) == "other"
    assert lessons.nearest(LINEAR, linear(64, 512)) == "default"
    assert "1 choice of 2 changed" in CliRunner().invoke(app, ["tune", "--from-report", str(path)]).stdout


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("not json", "is not a kernel report"),
        ("[1]", "is not a kernel report"),
        (json.dumps(report(format_version=99)), "has version 99"),
        (json.dumps(report(kernels="other")), "make a new report"),
        (json.dumps(report(cases=[{}])), "damaged report"),
        (json.dumps(report(device=None)), "damaged report"),
    ],
)
def test_other_files_are_refused(path: Path, text: str, message: str) -> None:
    path.write_text(text)
    with pytest.raises(FormatError, match=message):
        learn(path)


def test_the_command_takes_a_program_or_a_report(path: Path) -> None:
    neither = CliRunner().invoke(app, ["tune"])
    assert neither.exit_code == 2 and "name a .pte file" in neither.stderr
    both = CliRunner().invoke(app, ["tune", "model.pte", "--from-report", str(path)])
    assert both.exit_code == 2 and "not both" in both.stderr
