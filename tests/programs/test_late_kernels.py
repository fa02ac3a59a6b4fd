"""`load(wait=False)`: calls run before all kernels are compiled."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

import pteron
from pteron.engine.background_compiler import BackgroundCompiler
from pteron.engine.executor import Shader
from pteron.errors import DeviceError, PteronError
from tests.support.export import export
from tests.support.memory import poison

ROWS, WIDTH = 16, 64
SECONDS = 20  # more than any of these compilations takes


def make(folder):
    import torch

    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Softmax(-1))
    rows = torch.export.Dim("rows", min=1, max=ROWS)
    x = torch.randn(ROWS, WIDTH)
    (folder / "program.pte").write_bytes(export(module, (x,), ({0: rows},)))
    np.savez(folder / "expected.npz", x=x.numpy(), y=module(x).detach().numpy())


class Late:
    """A program, what torch computes, and the gate that its late kernels wait for."""

    def __init__(self, folder: Path, gate: threading.Event) -> None:
        self.path = folder / "program.pte"
        self.expected = np.load(folder / "expected.npz")
        self.gate = gate

    def check(self, method) -> None:
        for rows in (1, ROWS, 5, 1, 2):
            poison(method)
            found = method(self.expected["x"][:rows])
            np.testing.assert_allclose(found, self.expected["y"][:rows], 1e-4, 1e-5)


@pytest.fixture
def late(once, monkeypatch):
    gate = threading.Event()
    compile_route = BackgroundCompiler._compile

    def after_gate(self, key):
        assert gate.wait(SECONDS)
        compile_route(self, key)

    monkeypatch.setattr(BackgroundCompiler, "_compile", after_gate)
    yield Late(once("background_compiler", make), gate)
    gate.set()


def routes_at(method, rows):
    """The route of each node in a call with so many rows."""
    with method.prepare(np.zeros((rows, WIDTH), np.float32)) as call:
        return [step.route for step in call.steps()]


@pytest.fixture
def usual(late, device):
    """The routes of an ordinary load, by the number of rows. They differ, so there are late kernels."""
    with pteron.load(late.path, device=device, tune=False) as program:
        method = program.method()
        assert method.ready
        method.wait_ready()
        found = {rows: routes_at(method, rows) for rows in (1, 2, ROWS)}
    if found[1] == found[ROWS]:
        pytest.skip("this kind of device uses the same kernels at all sizes")
    return found


def test_calls_are_right_before_during_and_after_the_compilation(late, usual, device):
    with pteron.load(late.path, device=device, wait=False) as program:
        method = program.method()
        assert not method.ready and not program.ready
        late.check(method)
        assert routes_at(method, 1) != usual[1]  # another route takes its place
        late.gate.set()
        while not method.ready:
            late.check(method)
        program.wait_ready(SECONDS)
        made = device.allocations, device.compilations
        assert {rows: routes_at(method, rows) for rows in usual} == usual
        late.check(method)
        assert (device.allocations, device.compilations) == made


def test_calls_in_several_threads_go_on_while_kernels_are_compiled(late, device):
    with pteron.load(late.path, device=device, wait=False) as program, ThreadPoolExecutor(3) as threads:
        x, y = late.expected["x"], late.expected["y"]
        program(x)
        late.gate.set()
        sizes = [1, 5, ROWS, 2] * 30
        for rows, found in zip(sizes, threads.map(lambda n: program(x[:n]), sizes), strict=True):
            np.testing.assert_allclose(found, y[:rows], 1e-4, 1e-5)


def test_a_load_compiles_only_what_every_shape_can_use(late, usual):
    def compiled(wait):
        with (
            closing(pteron.open_device()) as own,
            pteron.load(late.path, device=own, wait=wait, tune=False) as program,
        ):
            found = program.device.compilations
            late.gate.set()
            return found

    assert compiled(wait=False) < compiled(wait=True)


def test_close_waits_for_the_kernel_that_is_compiled_and_leaves_out_the_others(late, usual, device):
    program = pteron.load(late.path, device=device, wait=False)
    method = program.method()
    kernels = method._executor.late
    with ThreadPoolExecutor(1) as thread:
        closing = thread.submit(program.close)
        while not kernels._stopped:
            pass
        assert not closing.done()
        late.gate.set()
        closing.result(SECONDS)
    assert not kernels._thread.is_alive() and not method.ready
    with pytest.raises(PteronError, match="closed before all its kernels were compiled"):
        kernels.wait()
    program.close()


def test_a_kernel_that_cannot_be_compiled_is_reported(late, usual, device, monkeypatch, caplog):
    with pteron.load(late.path, device=device, wait=False) as program:
        method = program.method()
        routes_at(method, 1)  # this call has done without the kernels

        of_one_row = set(usual[1]) - set(usual[ROWS])
        bad = [
            site.shader for (_, route, _), site in method._executor._site_of.items() if route in of_one_row
        ]
        compile_shader = Shader.compile

        def fail_some(self, device):
            if self in bad:
                raise DeviceError("no such instruction")
            compile_shader(self, device)

        monkeypatch.setattr(Shader, "compile", fail_some)
        with caplog.at_level(logging.WARNING):
            late.gate.set()
            with pytest.raises(DeviceError, match="no such instruction"):
                method.wait_ready(SECONDS)
        assert "no such instruction" in caplog.text and not method.ready
        with pytest.raises(DeviceError, match="no such instruction"):
            method(late.expected["x"][:1])
        # Other shapes do not need these kernels.
        np.testing.assert_allclose(method(late.expected["x"]), late.expected["y"], 1e-4, 1e-5)


def test_a_wait_has_a_limit(late, usual, device):
    with pteron.load(late.path, device=device, wait=False) as program:
        program.method()
        with pytest.raises(DeviceError, match=r"not compiled within 0\.01 s"):
            program.wait_ready(0.01)
        late.gate.set()


def test_a_process_may_end_while_kernels_are_compiled(late):
    code = "import sys, numpy, pteron; pteron.load(sys.argv[1], wait=False)(numpy.zeros((1, 64), 'f'))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(late.path)], capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_reloaded_program_compiles_late_kernels_again(late, usual):
    with pteron.load(late.path, wait=False) as program:
        method = program.method()
        first = method._executor.late
        late.gate.set()
        program.reload()
        assert not first._thread.is_alive()
        program.wait_ready(SECONDS)
        late.check(method)
        assert routes_at(method, 1) == usual[1]
