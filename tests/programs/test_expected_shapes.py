"""Expected shapes: they need no plan after load, others are refused on request, and calls can be counted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.export import Dim

import pteron
from pteron.api.method import Method
from pteron.api.profiling.trials import expected_inputs
from pteron.engine.devices.opening import Device
from pteron.errors import InputError, PteronError
from tests.dynamic_shape.test_replay import bounded
from tests.programs.test_bounds import Mixed, inputs
from tests.support.calls import check_calls, eager

HALVES, ROWS = st.integers(1, 8), st.integers(3, 8)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("expected") / "mixed.pte"
    half = Dim("half", min=1, max=8)
    shapes = ({0: 2 * half}, {0: half}, {0: Dim("rows", min=3, max=8)})
    pteron.export(Mixed(), inputs(8, 8), path, dynamic_shapes=shapes)
    return path


def shapes_of(half: int, rows: int) -> dict[str, tuple[int, int]]:
    return {"x": (2 * half, 4), "y": (half, 4), "z": (rows, 4)}


def visits(method: Method) -> int:
    """How many rules were evaluated since the load."""
    return method._live.visits  # no plan is made without a rule


def check(method: Method, *sizes: tuple[int, int]) -> None:
    check_calls(method, eager(Mixed(), [inputs(*pair) for pair in sizes]), 1e-5)


@settings(bounded, max_examples=6)
@given(points=st.lists(st.tuples(HALVES, ROWS), min_size=1, max_size=4, unique=True), other=st.data())
def test_expected_calls_are_planned_at_load(
    points: list[tuple[int, int]], other: Any, file: Path, device: Device
) -> None:
    """In any order, and also after a refused call."""
    expect = [shapes_of(*point) for point in points]
    with pteron.load(file, device=device, expect=expect, only_expected=True) as program:
        method = program.method("forward")
        before, allocations = visits(method), device.allocations
        for _ in range(3):
            try:
                check(method, other.draw(st.tuples(HALVES, ROWS)))  # may have a plan for other reasons
            except InputError as error:
                assert "to expect=" in str(error)
            check(method, *other.draw(st.permutations(points)))
        assert (visits(method), device.allocations) == (before, allocations)


def test_more_expected_shapes_than_a_node_remembers(file: Path, device: Device) -> None:
    """Each node remembers all of them."""

    class Sum(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.cumsum(0)

    path = file.with_name("sum.pte")
    pteron.export(Sum(), (torch.randn(200, 2),), path, dynamic_shapes=({0: Dim("n", min=1, max=200)},))
    with pteron.load(path, device=device, expect=[(n, 2) for n in (*range(1, 151), 200)]) as program:
        method = program.method("forward")
        before = visits(method)
        for n in (1, 150, 77, 200):
            torch.testing.assert_close(method(x := torch.randn(n, 2)), x.cumsum(0))
        assert visits(method) == before


def test_inputs_that_are_not_named_follow_the_others(file: Path, device: Device) -> None:
    with pteron.load(file, device=device, expect=[{"y": (3, 4)}]) as program:
        assert program.method("forward").expected == [shapes_of(3, 8)]


@pytest.mark.parametrize(
    ("expect", "message"),
    [
        ([(4, 4)], "could be the shape of x or y or z: give the shapes by name"),
        ([{"x": (4,)}], "x.* was given .*: give 2 sizes"),
        ([{"w": (4, 4)}], "no input w: the inputs are x, y, z"),
        ([{"x": (4, 4), "y": (3, 4)}], r"y\[0\] must be 2"),
        ([{"x": (5, 4)}], r"x\[0\] must be"),
        ([{"x": (18, 4)}], r"x\[0\] must be"),
    ],
)
def test_a_point_that_does_not_fit_is_refused_at_load(
    expect: Any, message: str, file: Path, device: Device
) -> None:
    with pytest.raises(InputError, match=message):
        pteron.load(file, device=device, expect=expect)


def test_options_that_do_not_fit_are_refused(file: Path, device: Device) -> None:
    with pytest.raises(InputError, match="needs shapes in expect="):
        pteron.load(file, device=device, only_expected=True)
    with pytest.raises(KeyError, match="forward"):
        pteron.load(file, device=device, expect={"decode": [(1, 4)]})


@pytest.fixture
def recorded(file: Path, device: Device, tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "shapes.json"
    with pteron.load(file, device=device) as program:
        method = program.method("forward")
        with method.record_shapes(path):
            for half in (2, 5, 5, 2, 5):
                method(*inputs(half, 3))
            with pytest.raises(PteronError, match="already records"):
                method.record_shapes(path)
        method(*inputs(1, 3))  # no longer counted
    yield path


def test_recorded_shapes_can_be_expected(recorded: Path, file: Path, device: Device) -> None:
    calls = json.loads(recorded.read_text())["calls"]
    assert [(entry["count"], entry["inputs"]["y"]) for entry in calls] == [(3, [5, 4]), (2, [2, 4])]
    with pteron.load(file, device=device, expect=recorded, only_expected=True) as program:
        method = program.method("forward")
        check(method, (2, 3), (5, 3))
        with pytest.raises(InputError, match="not expected"):
            method(*inputs(1, 3))
        times = [tuple(array.shape) for array in expected_inputs(method)[0]]
        assert times == list(shapes_of(5, 3).values())
    recorded.write_text("[]")
    with pytest.raises(InputError, match="is not a file that record_shapes"):
        pteron.load(file, device=device, expect=recorded)
