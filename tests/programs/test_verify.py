"""Wrong kernels are found in the node where they are used; right ones pass."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.export import Dim

import pteron
from pteron.compiler.ir.dtypes import DType
from pteron.engine.devices.opening import Device
from pteron.tools.verify import NodeResult, executorch_runtime
from pteron.tools.verify.catalogue import cases
from pteron.tools.verify.catalogue.entry import GENERAL
from pteron.tools.verify.comparison import compare
from pteron.tools.verify.numpy_reference import NumpyReference
from pteron.tools.verify.references import NoReference
from pteron.tools.verify.single_node import open_graph
from pteron.tools.verify.walk import walk
from tests.support.cli import answer, pteron_cli
from tests.support.damage import damaged
from tests.support.export import export

__all__ = ["damaged"]


class Scorer(torch.nn.Module):
    """Linear, a product with broadcasting, a softmax, and indices."""

    def __init__(self) -> None:
        super().__init__()
        self.project = torch.nn.Linear(8, 4)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scores = self.project(x) * mask
        return scores.softmax(-1), scores.argmax(-1)


@pytest.fixture(scope="module")
def scorer() -> Scorer:
    torch.manual_seed(0)
    return Scorer().eval()


@pytest.fixture(scope="module")
def path(scorer: Scorer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("verify") / "scorer.pte"
    rows = Dim("rows", max=6)
    given = (torch.zeros(6, 8), torch.zeros(6, 1))
    pteron.export(scorer, given, made, dynamic_shapes=({0: rows}, {0: rows}), partition=False)
    return made


PUT = "y_put(i, apply(a_fetch(i), b_fetch(i)));"
DAMAGES = {
    "a flipped sign": "y_put(i, -apply(a_fetch(i), b_fetch(i)));",
    "a wrong row at small shapes": PUT.replace("a_fetch(i)", "a_fetch(select(i, 0u, p.quads < 5u))"),
    "a race": PUT + " if ((i ^ 1u) < p.quads) { y_put(i ^ 1u, apply(a_fetch(i), b_fetch(i))); }",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_wrong_kernel_is_found_and_saved(
    path: Path, scorer: Scorer, tmp_path: Path, damaged: Callable[[str, str, str], None], damage: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    damaged("binary", PUT, DAMAGES[damage])
    report = pteron.verify(path, save=tmp_path)
    nodes = {(result.op, result.kernels) for result in report.bad if result.kernels}
    assert nodes == {("aten.mul.Tensor", ("binary",))}
    bad = report.first_bad
    assert bad is not None and bad.reference == "ExecuTorch" and "aten.mul.Tensor" in str(bad)
    if "small" in damage:
        assert all(result.reads[0][0] < 5 for result in report.bad)

    # The saved program and its arrays show the same error.
    arrays = np.load(tmp_path / f"node{bad.index}.npz")
    inputs = [arrays[name] for name in arrays if name.startswith("input")]
    with pteron.load(bad.saved) as again:
        np.testing.assert_array_equal(again(*inputs), arrays["found0"])
    assert "the first wrong node" in pteron_cli("verify", bad.saved, code=1).stdout
    monkeypatch.undo()
    with pteron.load(bad.saved) as healthy:
        np.testing.assert_allclose(healthy(*inputs), arrays["expected0"], rtol=1e-5)


def test_right_kernels_pass_against_every_reference(path: Path) -> None:
    with pteron.load(path) as program:
        report = pteron.verify(program, all_routes=True)
        assert report.ok and not report.unverified
        assert {result.reference for result in report.results} == {"ExecuTorch"} and not report.notes
        assert any(result.op.startswith("output") for result in report.results)  # whole methods
        assert pteron.verify(program, against="torch").references.keys() == {"torch"}
        assert [shapes["x"][0] for shapes in report.shapes] == [6, 4, 3, 1]
        routes = {result.route for result in report.results if "linear" in result.op}
        assert len(routes) > 1
        assert pteron.verify(program, against="portable").ok
        assert "are right" in report._repr_html_()


class Gate(torch.nn.Module):
    """Elementwise operators that become one node."""

    def forward(self, x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        return (x * gate).sigmoid() + x


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_fused_node_is_compared_with_the_operators_of_the_file(
    tmp_path: Path, damaged: Callable[[str, str, str], None], dtype: torch.dtype
) -> None:
    path = tmp_path / "gate.pte"
    rows = Dim("rows", max=6)
    given = (torch.zeros(6, 8, dtype=dtype), torch.zeros(6, 8, dtype=dtype))
    pteron.export(Gate(), given, path, dynamic_shapes=({0: rows}, {0: rows}), partition=False)
    report = pteron.verify(path)
    assert report.ok
    nodes = {(result.op, result.reference) for result in report.results if result.kernels}
    assert nodes == {("pteron.chain", "ExecuTorch")}
    damaged("chain", "1.0 / (1.0 +", "1.0 / (2.0 +")
    bad = pteron.verify(path).first_bad
    assert bad is not None and (bad.op, bad.reference) == ("pteron.chain", "ExecuTorch")


def test_software_is_the_name_of_an_adapter(path: Path) -> None:
    if not any(adapter.is_software for adapter in pteron.adapters()):
        pytest.skip("there is no software adapter")
    told = answer("verify", path, "--against", "software", "--live", "2")
    assert told["ok"] and told["verified"] > 2


def test_whole_programs_are_compared_with_their_module(path: Path, scorer: Scorer) -> None:
    inputs = (np.ones((3, 8), np.float32), np.ones((3, 1), np.float32))
    with pteron.load(path) as program:
        assert pteron.verify(program, scorer, inputs).ok
        assert not pteron.verify(program, Scorer(), inputs).ok


def test_the_command_compares_with_an_exported_program(path: Path, scorer: Scorer, tmp_path: Path) -> None:
    given = (torch.zeros(6, 8), torch.zeros(6, 1))
    torch.export.save(torch.export.export(scorer, given), tmp_path / "scorer.pt2")
    assert answer("verify", path, "--reference", tmp_path / "scorer.pt2")["ok"]
    (tmp_path / "text.pt2").write_text("no program")
    told = pteron_cli("verify", path, "--reference", tmp_path / "text.pt2", code=1).stderr
    assert "text.pt2: not an exported program (.pt2)" in told


def test_the_command_tells_the_verdict(path: Path) -> None:
    told = answer("verify", path, "--live", "5")
    assert told["ok"] and told["shapes"] == [{"x": [5, 8], "mask": [5, 1]}] and told["verified"] > 2
    assert "every result is right" in pteron_cli("verify", path, "--against", "portable").stdout


@pytest.mark.parametrize(
    ("dtype", "got", "want", "is_bad"),
    [
        (DType.float32, [1.0, 2.0], [1.0, 2.00001], False),
        (DType.float32, [1.0, 2.0], [1.0, 2.01], True),
        (DType.float32, [np.nan, np.inf], [np.nan, np.inf], False),
        (DType.float32, [np.nan], [1.0], True),
        (DType.float32, [np.inf], [-np.inf], True),
        (DType.float16, [1.0], [1.001], False),
        (DType.bfloat16, [1.0], [1.1], True),
        (DType.int32, [7], [8], True),
        (DType.bool, [True], [False], True),
        (DType.float32, [1.0, 2.0], [1.0], True),
        (DType.complex64, [1 + 2j], [1 + 2.00001j], False),
        (DType.complex64, [1 + 2j], [1 - 2j], True),
    ],
)
def test_tolerances(dtype: DType, got: list[complex], want: list[complex], is_bad: bool) -> None:
    assert compare("aten.add", dtype, np.array(got), np.array(want), 0.0).is_bad == is_bad


def test_a_result_is_one_sentence() -> None:
    result = NodeResult(
        3, "aten.mul.Tensor", "binary", ("binary",), ((2, 4),), "torch", 7.5, 0, (1, 2), 1.0, 2.0
    )
    assert str(result) == (
        "node 3, aten.mul.Tensor of [2, 4], kernel binary (route binary): output 0, element [1, 2]: "
        "expected 1 (torch), found 2: 7.5 times the allowed error"
    )


class Counter(torch.nn.Module):
    """A sum over all calls."""

    total: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total.add_(x.sum(0))
        return self.total + x


def test_whole_methods_are_compared_with_executorch_over_several_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "counter.pte"
    given = (torch.zeros(6, 4),)
    pteron.export(Counter(), given, path, dynamic_shapes=({0: Dim("rows", max=6)},), partition=False)
    with pteron.load(path) as program:
        report = pteron.verify(program)
        assert report.ok and not report.notes
        calls = [result for result in report.results if result.op.startswith("output")]
        assert len(calls) >= 3 and {result.reference for result in calls} == {"ExecuTorch"}
        # Every node is right, but the state is lost between calls: only whole methods show this.
        method = program.method()
        execute = method.execute
        monkeypatch.setattr(method, "execute", lambda *args: (method.reset(), execute(*args))[1])
        forgetful = pteron.verify(program)
        assert forgetful.bad and not any(result.kernels for result in forgetful.bad)
        assert "call 1" in str(forgetful.first_bad)


class Noisy(torch.nn.Module):
    """One output is random, and one is not."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return (x + torch.rand(4)) * 2, x * 3


def test_random_numbers_are_not_compared(tmp_path: Path) -> None:
    pteron.export(Noisy(), (torch.zeros(3, 4),), tmp_path / "noisy.pte", partition=False)
    report = pteron.verify(tmp_path / "noisy.pte")
    assert report.ok and {r.op for r in report.results if not r.kernels} == {"output output1 of call 0"}


def test_guessed_sizes_are_called_a_guess(tmp_path: Path, scorer: Scorer) -> None:
    path, given = tmp_path / "stock.pte", (torch.zeros(6, 8), torch.zeros(6, 1))
    rows = Dim("rows", max=6)
    path.write_bytes(export(scorer, given, ({0: rows}, {0: rows})))
    report = pteron.verify(path)
    assert "which sizes vary is a guess" in str(report) and "Compared: " in str(report)
    with pteron.load(path) as program:
        assert "(which sizes vary is a guess)" in repr(program.method())
    assert "follows a guess" in pteron_cli("run", path, "--live", "3").stderr


def test_delegates_that_executorch_lacks_are_noted(tmp_path: Path, scorer: Scorer) -> None:
    path = tmp_path / "scorer.pte"
    pteron.export(scorer, (torch.zeros(6, 8), torch.zeros(6, 1)), path)
    report = pteron.verify(path)
    assert report.ok and report.notes[-1:] == (
        "not compared as a whole: ExecuTorch's CPU runtime has no VulkanBackend",
    )
    assert "has no VulkanBackend" in pteron_cli("verify", path).stdout


def test_a_crash_of_executorch_loses_only_the_reference(path: Path) -> None:
    runtime = executorch_runtime.shared()
    assert "aten::add.out" in runtime.kernels
    process = runtime._process
    assert process is not None
    process.kill()
    process.wait()
    with pytest.raises(NoReference, match="ended its process"):
        runtime.run(path.read_bytes(), [])
    assert runtime.run(path.read_bytes(), []) == []  # a new process


@pytest.mark.parametrize("name", GENERAL)
def test_references_of_the_catalogue(device: Device, name: str) -> None:
    """They compute the nodes of programs that torch has no operators for."""
    case = next(case for case in cases() if case.op == name)
    with open_graph(case.graph, device, device.route_features) as method:
        (run,) = walk(method, case.call(case.sizes[0])[0])
        wanted = NumpyReference().outputs(method.graph, run)
    for got, want in zip(run.made, wanted, strict=True):
        assert not compare(name, DType.float32, got, want, 1.0).is_bad
        assert got.size == 1 or compare(name, DType.float32, got, -want, 1.0).is_bad
