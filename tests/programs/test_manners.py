"""How a program speaks to its caller: kinds of arrays, names, tables in notebooks."""

from __future__ import annotations

import html.parser
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.export import Dim

import pteron
from pteron.errors import FormatError, InputError
from pteron.pte.file import ProgramFile
from tests.support.cli import pteron_cli


class Scorer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project = torch.nn.Linear(8, 4)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> dict[str, torch.Tensor]:
        scores = self.project(x) * mask
        return {"scores": scores, "best": scores.argmax(-1)}


@pytest.fixture(scope="module")
def scorer() -> Scorer:
    torch.manual_seed(0)
    return Scorer().eval()


@pytest.fixture(scope="module")
def path(scorer: Scorer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("manners") / "scorer.pte"
    rows = Dim("rows", max=6)
    pteron.export(scorer, (torch.zeros(6, 8), torch.zeros(6, 1)), made, dynamic_shapes=({0: rows}, {0: rows}))
    return made


@pytest.fixture(scope="module")
def program(path: Path) -> Iterator[pteron.Program]:
    with pteron.load(path) as loaded:
        yield loaded


# -- kinds of arrays ----------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [6, 2, 5])
def test_tensors_in_tensors_out(program: pteron.Program, scorer: Scorer, rows: int) -> None:
    x, mask = torch.randn(rows, 8, requires_grad=True), torch.rand(rows, 1)
    for scores, best in (program(x, mask), program.method().submit(x, mask.numpy()).result()):
        want = scorer(x, mask)
        torch.testing.assert_close(scores, want["scores"].detach(), atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(best, want["best"])


def test_arrays_in_arrays_out(program: pteron.Program) -> None:
    outputs = program(np.ones((3, 8), np.float32), np.ones((3, 1), np.float32))
    assert [type(output) for output in outputs] == [np.ndarray, np.ndarray]


def test_bfloat16_tensors_come_back_as_bfloat16(tmp_path: Path) -> None:
    class Double(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    x = torch.randn(5).bfloat16()
    pteron.export(Double(), (x,), tmp_path / "m.pte", partition=False)
    with pteron.load(tmp_path / "m.pte") as program:
        torch.testing.assert_close(program(x), x * 2)
        assert program(x.float().numpy()).dtype == np.float32


def test_torch_is_not_imported(path: Path) -> None:
    script = (
        "import sys, numpy, pteron\n"
        f"y, _ = pteron.load({str(path)!r})(numpy.ones((2, 8), 'float32'), numpy.ones((2, 1), 'float32'))\n"
        "assert y.shape == (2, 4) and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        (torch.zeros(2, 8).double(), r"x: .* got float64: convert it with \.to\(torch\.float32\)"),
        (np.zeros((2, 8)), r'x: .* got float64: convert it with \.astype\("float32"\)'),
        ([[0] * 8] * 2, r'x: .* got int64: pass numpy\.asarray\(value, "float32"\)'),
    ],
)
def test_hints_are_in_the_terms_of_the_caller(program: pteron.Program, wrong: Any, hint: str) -> None:
    with pytest.raises(InputError, match=hint):
        program(wrong, np.ones((2, 1), np.float32))


# -- names --------------------------------------------------------------------------------------


def test_inputs_have_the_names_of_the_arguments(program: pteron.Program, scorer: Scorer) -> None:
    assert (
        "(x: float32[rows <= 6, 8], mask: float32[rows, 1]) -> scores: float32[rows, 4], best: int64[rows]"
        in repr(program.method())
    )
    x, mask = torch.randn(4, 8), torch.rand(4, 1)
    for scores, _ in (program(mask=mask, x=x), program(x, mask=mask)):
        torch.testing.assert_close(scores, scorer(x, mask)["scores"].detach(), atol=1e-5, rtol=1e-5)
    assert program.method().why_static("mask", 1)


@pytest.mark.parametrize(
    ("inputs", "named", "message"),
    [
        (1, {}, r"takes 2 inputs \(x: float32\[6, 8\], mask: float32\[6, 1\]\), got 1"),
        (1, {"x": None}, "got 1 and x by name"),
        (2, {"input0": None}, "got 2 and input0 by name"),
        (2, {"state": 3}, r"state must be made by method\.new_state\(\), not a int"),
    ],
)
def test_wrong_names_are_refused(program: pteron.Program, inputs: int, named: Any, message: str) -> None:
    given = [torch.zeros(2, 8), torch.zeros(2, 1)][:inputs]
    with pytest.raises(InputError, match=message):
        program(*given, **named)


def test_the_command_line_uses_the_names(path: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", mask=np.ones((2, 1), np.float32), x=np.ones((2, 8), np.float32))
    pteron_cli("run", path, "-i", tmp_path / "in.npz", "-o", tmp_path)
    assert np.load(tmp_path / "scores.npy").shape == (2, 4)
    assert "mask" in pteron_cli("inspect", path).stdout


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (b"{", "is not JSON"),
        (b"[]" + b" " * 40, "is not a JSON object of objects"),
        (b'{"forward": {"inputs": ["x", 3]}}', "inputs in pteron.names.json must be a list of names"),
        (b'{"forward": {"inputs": ["x", "x"]}}', "has 1 different inputs, expected 2"),
    ],
)
def test_damaged_names_are_refused(path: Path, entry: bytes, message: str) -> None:
    with ProgramFile.open(path) as file:
        region = file.named_data("pteron.names.json")
        start, count = region.start, len(region)
    damaged = bytearray(path.read_bytes())
    damaged[start : start + count] = entry.ljust(count)[:count]
    with pytest.raises(FormatError, match=message):
        pteron.load(bytes(damaged))


# -- notebooks ----------------------------------------------------------------------------------


class Cells(html.parser.HTMLParser):
    """The texts of a page. Fails if tags are not closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        assert not self._open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_notebooks_show_tables(program: pteron.Program, path: Path) -> None:
    method = program.method()
    inputs = np.ones((3, 8), np.float32), np.ones((3, 1), np.float32)
    method(*inputs)
    assert "[3, 8]" in Cells(method.live_shapes._repr_html_()).texts  # type: ignore[attr-defined]
    assert "x: float32[rows <= 6, 8]" in Cells(method._repr_html_()).texts
    assert "x: float32[rows <= 6, 8]" in Cells(program._repr_html_()).texts
    profile = pteron.profile(method, inputs, repeat=1)
    assert {node.op for node in profile.nodes} <= set(Cells(profile._repr_html_()).texts)
    assert "can run" in Cells(pteron.check(path)._repr_html_()).texts[0]
