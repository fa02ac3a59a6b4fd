"""Files of `pteron.export` say which sizes may vary, with ranges and relations. Calls are held to them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from executorch.runtime import Runtime
from torch import Tensor, nn
from torch.export import Dim

import pteron
from pteron.compiler.pipeline import lower
from pteron.engine.devices.opening import Device
from pteron.pte.file import ProgramFile
from pteron.tools.inspect.inspect import inspect_method
from pteron.tools.viewer.size_controls import changes_for, find_controls
from tests.support.cli import pteron_cli


class Pairs(nn.Module):
    """Twice as many rows as sums, and heads that no operator needs to be 4."""

    def forward(self, x: Tensor, y: Tensor, heads: Tensor) -> tuple[Tensor, Tensor]:
        return x.unflatten(0, (-1, 2)).sum(1) + y, heads.cumsum(0) * 2


def inputs(half: int, rows: int) -> tuple[Tensor, ...]:
    return torch.randn(2 * half, 4), torch.randn(half, 4), torch.randn(rows, 4)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sizes") / "pairs.pte"
    half = Dim("half", min=1, max=8)
    shapes = ({0: 2 * half}, {0: half}, {0: Dim("rows", min=3, max=8)})
    pteron.export(Pairs(), inputs(8, 8), path, dynamic_shapes=shapes)
    return path


@pytest.fixture(scope="module")
def method(file: Path, device: Device) -> Iterator[Any]:
    with pteron.load(file, device=device) as program:
        yield program.method()


def test_inputs_show_ranges_and_steps(method: Any) -> None:
    assert [str(info) for info in method.inputs] == [
        "x: float32[2*half <= 16, 4]",
        "y: float32[half <= 8, 4]",
        "heads: float32[3 <= rows <= 8, 4]",
    ]
    assert [info.dynamic_dims for info in method.inputs] == [(0,)] * 3
    assert not any(info.guessed for info in method.inputs)
    assert method.inputs[0].shape_at(5) == (4, 4) and method.inputs[1].shape_at(5) == (2, 4)
    assert method.why_static("x", 0) is None
    assert "heads[1] was exported as the constant 4" in method.why_static("heads", 1)


def test_calls_at_allowed_sizes_are_those_of_torch(method: Any) -> None:
    for half, rows in ((8, 8), (1, 3), (5, 4), (2, 7), (8, 3)):
        given = inputs(half, rows)
        for mine, torchs in zip(method(*given), Pairs()(*given), strict=True):
            torch.testing.assert_close(mine, torchs)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((7, 4), (4, 4), (8, 4)), r"x\[0\] must be a multiple of 2, from 2 to 16, not 7"),
        (
            ((8, 4), (3, 4), (8, 4)),
            r"y\[0\] must be 4 where x\[0\] is 8, not 3: y\[0\] is half, x\[0\] is 2\*half",
        ),
        (((8, 4), (4, 4), (2, 4)), r"heads\[0\] must be from 3 to 8, not 2"),
        (((8, 4), (4, 4), (8, 3)), r"heads\[1\] must be 4, not 3: it was exported as a constant"),
        (
            ((18, 4), (9, 4), (8, 4)),
            r"exported for at most 16 \(x\[0\] is 2\*half, and half is from 1 to 8\)",
        ),
    ],
)
def test_sizes_that_the_export_did_not_allow_are_refused(method: Any, shapes: Any, message: str) -> None:
    with pytest.raises(pteron.InputError, match=message):
        method(*(torch.zeros(shape) for shape in shapes))
    given = inputs(2, 3)
    torch.testing.assert_close(method(*given)[0], Pairs()(*given)[0])


def test_a_size_that_follows_from_another_keeps_its_smallest() -> None:
    for smallest, text in ((1, r"from 2 to 16, not 0"), (3, r"from 6 to 16, not 0")):
        shapes = ({0: 2 * Dim("half", min=smallest, max=8)},)
        with (
            pteron.load(
                pteron.export(nn.ReLU(), (torch.randn(16, 4),), dynamic_shapes=shapes).buffer
            ) as program,
            pytest.raises(pteron.InputError, match=text),
        ):
            program(torch.zeros(0, 4))


def test_reports_use_the_stored_sizes(file: Path, method: Any) -> None:
    with ProgramFile.open(file) as opened:
        info = inspect_method(opened, "forward")
        assert not info.guessed and info.inputs[0].sizes == ("2*half <= 16", "4")
        live = lower(opened).plan()["forward"]
    controls = find_controls(live)
    assert [(c.name, c.low, c.high, c.step) for c in controls] == [("x[0]", 2, 16, 2), ("heads[0]", 3, 8, 1)]
    changes = changes_for(live.graph, controls, {"x[0]": 6})
    assert [changes[port.value.id] for port in live.graph.inputs] == [(6, 4), (3, 4), (8, 4)]
    shown = pteron_cli("inspect", file).stdout
    assert "(2*half ≤ 16, 4)" in shown and "(3 ≤ rows ≤ 8, 4)" in shown and "guess" not in shown
    assert "(4, 4)" in pteron_cli("run", file, "--live", 5).stdout
    report = pteron.verify(method.program)
    assert report.ok and len(report.shapes) >= 3 and not any("live shape" in note for note in report.notes)


def test_stock_executorch_reads_the_file(file: Path) -> None:
    assert Runtime.get().load_program(file).method_names == {"forward"}
    made = pteron.export(Pairs(), inputs(8, 8), partition=False)
    (first, _) = Runtime.get().load_program(made.buffer).load_method("forward").execute(inputs(8, 8))
    assert first.shape == (8, 4)


def test_a_file_of_another_exporter_is_guessed(device: Device) -> None:
    from tests.support.export import export

    class Halves(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.unflatten(0, (-1, 2)).sum(1)

    buffer = export(Halves(), (torch.randn(16, 4),), ({0: 2 * Dim("h", max=8)},))
    with pteron.load(buffer, device=device) as program:
        (x,) = program.method().inputs
        assert x.dynamic_dims == (0,) and x.guessed
        with ProgramFile.open(buffer) as opened:
            assert inspect_method(opened, "forward").guessed
        report = pteron.verify(program)
        assert any("refuses others" in note for note in report.notes)
