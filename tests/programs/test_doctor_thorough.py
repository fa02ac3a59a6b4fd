"""`pteron doctor --thorough`: wrong kernels are found, named, remembered and avoided; right ones pass."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import pteron
from pteron.compiler.plan.routes import ByName
from pteron.engine.devices.opening import Device, open_device
from pteron.engine.measured import kernel_blocklist as examined
from pteron.engine.measured.kernel_blocklist import Examined
from pteron.runtime.executorch import Runtime
from pteron.tools.verify import selftest
from pteron.tools.verify.catalogue import cases
from pteron.tools.verify.selftest import SelfTestReport, run_selftest
from tests.conftest import Once, open_as
from tests.support.cli import answer, pteron_cli
from tests.support.damage import damage
from tests.support.export import export

ROWS, WIDTH = 24, 64
LINEAR = [case for case in cases() if case.op == "aten.linear.default" and case.sizes[0] < 100][:1]
FINISH = "finish_four(origin.matrix, row, column, whole);"
READ = "a_four(start.matrix, start.row + r, k)"
# What is wrong: the kernel, its text, the wrong text, and a number of rows that a GPU uses the kernel for.
DAMAGES = {
    "a flipped sign": ("matmul_tile", FINISH, FINISH.replace("whole", "-whole"), 20),
    "a wrong row at small shapes": ("matmul_teams", READ, READ.replace("+ r", "+ r + u32(p.rows < 5u)"), 3),
    "a race": ("matmul_tile", "workgroupBarrier();", "", 20),
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A separate cache for the test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "pteron" / "examined.json"


@pytest.fixture(scope="module")
def gpu() -> Iterator[Device]:
    """This device, with the routes of a GPU."""
    device = open_as("GPU")
    yield device
    device.close()


@pytest.fixture(scope="module")
def linear(once: Once) -> Path:
    def make(folder: Path) -> None:
        torch.manual_seed(0)
        module = torch.nn.Linear(WIDTH, WIDTH)
        rows = torch.export.Dim("rows", min=1, max=ROWS)
        (folder / "linear.pte").write_bytes(export(module, (torch.randn(ROWS, WIDTH),), ({0: rows},)))
        x = torch.randn(ROWS, WIDTH)
        np.savez(folder / "expected.npz", x=x.numpy(), y=module(x).detach().numpy())

    return once("examined_linear", make)


def error_of(folder: Path, device: Device, rows: int) -> float:
    arrays = np.load(folder / "expected.npz")
    with pteron.load(folder / "linear.pte", device=device, tune=False) as program:
        return float(np.abs(program(arrays["x"][:rows]) - arrays["y"][:rows]).max())


def error_of_twin(folder: Path, device: Device, rows: int) -> float:
    """The same through the interface of `executorch.runtime`."""
    arrays = np.load(folder / "expected.npz")
    runtime = Runtime()
    runtime._device = device
    method = runtime.load_program(folder / "linear.pte").load_method("forward")
    return float(np.abs(method.execute([arrays["x"][:rows]])[0] - arrays["y"][:rows]).max())


@pytest.mark.parametrize("what", DAMAGES)
def test_a_wrong_kernel_is_found_and_avoided(
    linear: Path, gpu: Device, what: str, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    kernel, before, after, rows = DAMAGES[what]
    damage(monkeypatch, kernel, before, after)
    assert error_of(linear, gpu, rows) > 0.1

    found = run_selftest(gpu, LINEAR)
    assert found.wrong and all(label.endswith(f": {kernel}") for label in found.wrong)
    assert kernel in str(found) and "cannot be trusted" in str(found)
    if "small" in what:
        assert {finding.size for finding in found.findings} == {1, 2, 4}

    examined.write(gpu.adapter, Examined("2026-11-16", found.results, found.wrong))
    with caplog.at_level(logging.WARNING):
        assert error_of(linear, gpu, rows) < 1e-4
    assert error_of_twin(linear, gpu, rows) < 1e-4
    assert kernel in caplog.text and "other kernels are used: aten.linear.default" in caplog.text

    examined.forget(gpu.adapter)
    assert error_of(linear, gpu, rows) > 0.1


def test_a_kernel_without_an_alternative_is_told(
    linear: Path, gpu: Device, caplog: pytest.LogCaptureFixture
) -> None:
    with pteron.load(linear / "linear.pte", device=gpu, choice=ByName("")) as program:
        routes = program.method()._live.routes[0]
    found = {route.label: ("aten.linear.default",) for route in routes}
    examined.write(gpu.adapter, Examined("2026-11-16", 1, found))
    assert error_of(linear, gpu, 3) < 1e-4
    assert "no other kernel can be used" in caplog.text


def test_right_kernels_are_trusted(gpu: Device) -> None:
    found = run_selftest(gpu, LINEAR)
    assert found.ok and found.routes > 3 and "can be trusted" in str(found)


def test_the_command(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    monkeypatch.setattr(selftest, "all_cases", lambda: LINEAR)
    assert answer("doctor")["adapters"][0]["examined"] is None
    assert "not examined" in pteron_cli("doctor").stdout
    told = pteron_cli("doctor", "--thorough", "--device", "0").stdout
    assert told.splitlines()[-1].endswith("all are right.")
    assert answer("doctor")["adapters"][0]["examined"]["wrong"] == {}

    kernel, before, after, _ = DAMAGES["a flipped sign"]
    damage(monkeypatch, kernel, before, after)
    told = pteron_cli("doctor", "--thorough", code=1).stdout
    assert "cannot be trusted with: small tile gemm: matmul_tile (aten.linear.default)" in told
    assert answer("doctor")["adapters"][0]["examined"]["wrong"] == {
        "small tile gemm: matmul_tile": ["aten.linear.default"]
    }
    assert "small tile gemm: matmul_tile" in pteron_cli("doctor").stdout
    pteron_cli("doctor", "--forget")
    assert answer("doctor")["adapters"][0]["examined"] is None


@pytest.mark.parametrize("entry", ["1", "[]", "{}", '{"day": 1, "results": 2, "wrong": [3]}'])
def test_a_damaged_note_is_ignored(gpu: Device, cache: Path, entry: str) -> None:
    examined.write(gpu.adapter, Examined("2026-11-16", 1, {}))
    text = cache.read_text()
    cache.write_text(text[: text.index(": ") + 2] + entry + "}")
    assert examined.read(gpu.adapter) is None


@pytest.mark.slow
def test_every_kernel_is_right_here() -> None:
    device = open_device()
    try:
        found: SelfTestReport = run_selftest(device)
    finally:
        device.close()
    assert found.ok, str(found)
    assert found.routes > 150
