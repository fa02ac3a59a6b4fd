"""`pteron bench --report`: every route of every case is timed, and `pteron tune` can learn from the file."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from pteron.api.profiling.kernel_timer import GPU_CLOCK, HOST_CLOCK, KernelTimer
from pteron.cli.commands import app
from pteron.compiler.plan.routes import ByName
from pteron.compiler.plan.sweep import plan
from pteron.engine.devices.opening import Device
from pteron.tools.tune import kernel_report
from pteron.tools.verify.catalogue.arguments import C, F
from pteron.tools.verify.catalogue.timed import TIMED, TimedCase

X = F(4, 64)
IMAGE, FILTERS = F(1, 8, 6, 6), C(1, 3, 3, 8)
CONVOLUTION = (IMAGE, FILTERS, None, [1, 1], [1, 1], [1, 1], 8, None, None, IMAGE)
SMALL = [
    TimedCase("Convolution", "8 filters", "pteron.packed_convolution", CONVOLUTION),
    TimedCase("Sum", "4 × 64", "aten.add.Tensor", (X, X, 1, X)),
]


@pytest.fixture(scope="module")
def report(device: Device) -> dict[str, Any]:
    held = device.allocated_nbytes
    made = kernel_report.make_report(device, 600, SMALL)
    assert device.allocated_nbytes == held
    return made


def test_every_route_that_fits_is_timed(device: Device, report: dict[str, Any]) -> None:
    assert report["left_out"] == [] and report["failed"] == {}
    convolution, total = report["cases"]
    live = plan(SMALL[0].graph(), device.route_features, ByName())
    fitting = [route.name for route in live.routes[0] if route.when is not False]
    assert [route["route"] for route in convolution["routes"]] == fitting
    assert [route["route"] for route in total["routes"]] == ["only"]
    assert len(fitting) > 1
    assert convolution["flops"] == 2 * 9 * 8 * 36 and convolution["nbytes"] == 4 * (2 * 8 * 36 + 9 * 8)
    assert total["nbytes"] == 4 * 3 * 4 * 64 and total["flops"] is None and total["bound"] == "memory"
    for route in (*convolution["routes"], *total["routes"]):
        assert route["seconds"] > 0 and route["runs"] >= 1 and route["kernels"][0]["grid"]


def test_the_share_of_the_ceiling_follows_from_the_times(report: dict[str, Any]) -> None:
    ceilings = report["ceilings"]
    assert all(number > 0 for number in ceilings.values())
    for case in report["cases"]:
        by_bytes = case["nbytes"] / ceilings["bytes_per_second"]
        by_flops = (case["flops"] or 0) / ceilings["flops_per_second"]
        assert case["least_seconds"] == pytest.approx(max(by_bytes, by_flops))
        assert case["bound"] == ("arithmetic" if by_flops > by_bytes else "memory")
        for route in case["routes"]:
            share = 100 * case["least_seconds"] / route["seconds"]
            assert route["percent_of_ceiling"] == pytest.approx(share, abs=0.01)


def test_without_timestamps_the_host_measures(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(device), "timer", None)
    assert KernelTimer(device).clock == HOST_CLOCK != GPU_CLOCK
    made = kernel_report.make_report(device, 600, SMALL[1:])
    assert made["clock"] == HOST_CLOCK
    assert made["cases"][0]["routes"][0]["seconds"] > 0


def test_no_case_is_begun_after_the_time(device: Device) -> None:
    made = kernel_report.make_report(device, 0, SMALL)
    assert made["cases"] == []
    assert made["left_out"] == ["Convolution: 8 filters", "Sum: 4 × 64"]


def test_a_case_that_fails_is_reported(device: Device) -> None:
    bad = TimedCase("Bad", "shapes", "aten.mm.default", (X, X, X))
    made = kernel_report.make_report(device, 600, [bad, SMALL[1]])
    assert list(made["failed"]) == ["Bad: shapes"] and len(made["cases"]) == 1


def test_the_command_writes_a_report(device: Device, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(kernel_report, "TIMED", SMALL)
    path = tmp_path / "report.json"
    told = CliRunner().invoke(app, ["bench", "--report", str(path), "--seconds", "600"])
    assert told.exit_code == 0, (told.stdout, told.stderr)
    assert "GB/s" in told.stdout and str(path.name) in told.stdout.replace("\n", "")
    written = json.loads(path.read_text("utf-8"))
    assert written["device"]["name"] == device.adapter.name and written["device"]["limits"]


def test_a_model_or_a_report_is_needed() -> None:
    result = CliRunner().invoke(app, ["bench"])
    assert result.exit_code == 2 and "--report" in result.stderr


def test_every_built_in_case_can_be_planned(device: Device) -> None:
    assert len({(case.family, case.name) for case in TIMED}) == len(TIMED)
    for case in TIMED:
        assert plan(case.graph(), device.route_features).plans[0] is not None
